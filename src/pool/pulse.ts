import { LONGEST_TIMER_MS } from "../duration.ts";

/**
 * Repeats one action, never twice at the same time. `beat` returns the milliseconds until the next one, which
 * comes after 24 days at the latest, and must not reject.
 */
export function makePulse(beat: () => Promise<number>) {
  let beating: Promise<void> = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;
  let dueAt = 0;
  let stopped = false;

  function schedule(ms: number): void {
    if (stopped) return;
    clearTimeout(timer);
    dueAt = performance.now() + ms;
    timer = setTimeout(() => void now(), Math.min(ms, LONGEST_TIMER_MS));
  }

  /** Beats, after the beat under way. */
  function now(): Promise<void> {
    clearTimeout(timer);
    beating = beating.then(async () => schedule(await beat()));
    return beating;
  }

  return {
    schedule,
    now,
    /** The next beat comes within this time. */
    within(ms: number): void {
      if (dueAt - performance.now() > ms) schedule(ms);
    },
    /** No further beat until one is scheduled. Resolves when the beat under way has ended. */
    rest(): Promise<void> {
      clearTimeout(timer);
      return beating;
    },
    /** No further beat at all. Resolves when the beat under way has ended. */
    stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      return beating;
    },
  };
}
