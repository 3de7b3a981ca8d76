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
export function spread({ buckets, runs }: Pick<RecordedLoad, "buckets" | "runs">): Durations {
  const all = sum(runs);
  if (all === 0) return even;
  const lengths = Array.from({ length: 101 }, (_, n) => quantile((n + 0.5) / 101, buckets, runs, all));
  const mean = sum(lengths) / lengths.length;
  let n = 0;
  return (meanSeconds) => {
    n = (n + 37) % lengths.length; // 37 and 101 share no factor: each length comes once in 101 runs
    return ((lengths[n] as number) / mean) * meanSeconds * 1000;
  };
}

/** Within a bucket they count as spread evenly. What is longer than all buckets counts as the last bound. */
function quantile(share: number, buckets: readonly number[], counts: readonly number[], all: number): number {
  let before = 0;
  for (const [n, jobs] of counts.entries()) {
    if (before + jobs >= share * all && jobs > 0) {
      const lower = buckets[n - 1] ?? 0;
      const upper = buckets[n] ?? lower;
      return lower + ((upper - lower) * (share * all - before)) / jobs;
    }
    before += jobs;
  }
  return buckets.at(-1) ?? 0;
}
