// How long the replayed runs last.
import type { RecordedLoad } from "../db/engine.ts";
import { sum } from "./plan.ts";

/** The next run's length in milliseconds, by the mean of its partition in seconds. */
export type Durations = (meanSeconds: number) => number;

/** Every run takes the mean. */
export const even: Durations = (meanSeconds) => meanSeconds * 1000;

/**
 * Runs are as different as those that were recorded, with the same mean. They come in a fixed order that mixes short and
 * long ones, so that a replay is the same each time.
 */
export function spread({ runs: lengths }: Pick<RecordedLoad, "runs">): Durations {
  if (lengths.length === 0) return even;
  const mean = sum(lengths) / lengths.length;
  let n = 0;
  return (meanSeconds) => {
    n = (n + 37) % lengths.length; // 37 and 101 share no factor: each length comes once in 101 runs
    return ((lengths[n] as number) / mean) * meanSeconds * 1000;
  };
}
