import { setTimeout as delay } from "node:timers/promises";
import { LONGEST_TIMER_MS } from "../duration.ts";

/** Sleeps for so long, 24 days at most, or until the signal aborts. The caller checks which it was. */
export function sleep(
  ms: number,
  signal: AbortSignal | undefined,
  { keepsAlive = true }: SleeperOptions = {},
): Promise<void> {
  return delay(Math.min(ms, LONGEST_TIMER_MS), undefined, { signal, ref: keepsAlive }).catch(() => {});
}

/** `keepsAlive`: whether a sleep keeps the process alive. Default true. */
export interface SleeperOptions {
  readonly keepsAlive?: boolean;
}

/** A loop's sleep that others can cut short or prolong. One sleep at a time. */
export interface Sleeper {
  /**
   * Resolves at the time that `until` gives, by `performance.now()` in milliseconds, and after a timer at the earliest.
   * `until` is asked again at each {@link Sleeper.wake}: the sleep ends then, or goes on until the new time.
   */
  sleepUntil(until: () => number): Promise<void>;
  /** Asks for the time again. Does nothing while nobody sleeps. */
  wake(): void;
}

export function makeSleeper({ keepsAlive = true }: SleeperOptions = {}): Sleeper {
  let ask = (): void => {};
  return {
    sleepUntil: (until) =>
      new Promise((resolve) => {
        let endsAt = until();
        let timer = startTimer(endsAt - performance.now());
        function startTimer(ms: number): NodeJS.Timeout {
          const started = setTimeout(goOn, Math.min(Math.max(ms, 0), LONGEST_TIMER_MS));
          return keepsAlive ? started : started.unref();
        }
        // Node counts a timer from when it last looked at the clock, so it may fire some milliseconds early
        function goOn(): void {
          const left = endsAt - performance.now();
          if (left > 0) timer = startTimer(left);
          else resolve();
        }
        ask = () => {
          const asked = until();
          if (asked === endsAt) return;
          endsAt = asked;
          clearTimeout(timer);
          goOn();
        };
      }),
    wake: () => ask(),
  };
}
