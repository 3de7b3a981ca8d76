/** A verb that works in steps gives up after so many without progress. Each of them waits for locks for about a second. */
export const IDLE_STEPS = 20;
/** It rests for so long after a step without progress. */
export const IDLE_SLEEP_MS = 100;
