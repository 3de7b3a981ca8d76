/**
 * Does one thing again and again, never twice at a time: `beat` tells after how many milliseconds it is to come again. It
 * does not throw.
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
    timer = setTimeout(() => void now(), ms);
  }

  /** After the one under way. */
  function now(): Promise<void> {
    clearTimeout(timer);
    beating = beating.then(async () => schedule(await beat()));
    return beating;
  }

  return {
    schedule,
    now,
    /** Within that time, should it not come sooner anyway. */
    within(ms: number): void {
      if (dueAt - performance.now() > ms) schedule(ms);
    },
    /** No more for now; resolves when the one under way has ended. */
    rest(): Promise<void> {
      clearTimeout(timer);
      return beating;
    },
    /** For good. */
    stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      return beating;
    },
  };
}
