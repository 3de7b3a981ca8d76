import type { Pass } from "./tick.ts";

/** A pass that finds work but gets nowhere (a row is locked, another router is at work) is repeated this slowly at most. */
const SLOWEST_MS = 100;
/** While the workers have enough to do, passes are this far apart. Otherwise each job that ends would cause one. */
const SATURATED_MS = 25;
/** After a failed pass the loop waits this long, twice as long after each further failure. Only a stop cuts it short. */
const FIRST_ERROR_SLEEP_MS = 250;
const LONGEST_ERROR_SLEEP_MS = 5000;

/** How long a loop sleeps after a pass, in milliseconds. */
export interface Sleep {
  /** If nothing nudges the loop. */
  readonly ms: number;
  /** If something does: the loop sleeps this long at least. */
  readonly leastMs: number;
}

/** Works out a loop's sleeps from the passes it has done: they grow while passes get nowhere or fail. */
export function makeSleeps({
  minTickIntervalMs,
  loopHeartbeatMs,
}: {
  readonly minTickIntervalMs: number;
  readonly loopHeartbeatMs: number;
}) {
  let slow = minTickIntervalMs;
  let failures = 0;

  return {
    afterPass(pass: Pass): Sleep {
      failures = 0;
      const saturated = pass.saturated === "workers" && minTickIntervalMs > 0 ? SATURATED_MS : 0;
      return { ms: untilNext(pass), leastMs: Math.max(minTickIntervalMs, saturated) };
    },
    afterFailure(): Sleep {
      const ms = Math.min(FIRST_ERROR_SLEEP_MS * 2 ** failures, LONGEST_ERROR_SLEEP_MS);
      failures++;
      return { ms, leastMs: ms };
    },
  };

  function untilNext(pass: Pass): number {
    const ready = pass.more || (pass.nextInMs !== null && pass.nextInMs <= 0);
    slow = ready && !pass.progress ? Math.min(slow * 2, SLOWEST_MS) : minTickIntervalMs;
    if (ready) return slow;
    return Math.min(Math.max(pass.nextInMs ?? Number.POSITIVE_INFINITY, 0) + 1, loopHeartbeatMs);
  }
}
