import { createHistogram, type RecordableHistogram } from "node:perf_hooks";

/** The seconds over which percentiles are rolling. */
export const WINDOW_S = 30;
const HOUR_IN_US = 3_600_000_000;

/**
 * Percentiles of the last seconds, in memory that does not grow with the jobs: a histogram of three figures for each second.
 * Times are in milliseconds.
 */
export class Latencies {
  readonly #seconds = new Map<number, RecordableHistogram>();

  record(ms: number, now = Date.now()): void {
    const second = Math.floor(now / 1000);
    let histogram = this.#seconds.get(second);
    if (!histogram) {
      this.#forget(second);
      histogram = empty();
      this.#seconds.set(second, histogram);
    }
    histogram.record(Math.min(Math.max(Math.round(ms * 1000), 1), HOUR_IN_US));
  }

  /** 0 if nothing was recorded in the window. */
  percentile(percent: number, now = Date.now()): number {
    const second = Math.floor(now / 1000);
    this.#forget(second);
    const all = empty();
    for (const histogram of this.#seconds.values()) all.add(histogram);
    return all.count === 0 ? 0 : all.percentile(percent) / 1000;
  }

  #forget(second: number): void {
    for (const one of this.#seconds.keys()) if (one <= second - WINDOW_S) this.#seconds.delete(one);
  }
}

const empty = () => createHistogram({ lowest: 1, highest: HOUR_IN_US, figures: 3 });
