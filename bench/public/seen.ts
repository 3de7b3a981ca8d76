import { moment } from "../harness/moment.ts";
import { Columns } from "./columns.ts";
import type { Job } from "./jobs.ts";
import { Latencies, WINDOW_S } from "./latencies.ts";
import type { Metric } from "./lines.ts";
import type { Limits } from "./settings.ts";

/** What this process did with jobs, and the metrics that follow. */
export class Seen {
  /** From a job's addition to its start, and to its end. */
  readonly #claims = new Latencies();
  readonly #ends = new Latencies();
  readonly #columns: Columns;
  #added = 0;
  #completed = 0;
  #since = moment();

  constructor(limits: Limits) {
    this.#columns = new Columns(limits);
  }

  added(count: number): void {
    this.#added += count;
  }

  started(job: Job): void {
    const waitedMs = moment() - job.addedAt;
    this.#claims.record(waitedMs);
    this.#columns.started(job, waitedMs);
  }

  ended(job: Job): void {
    this.#ends.record(moment() - job.addedAt);
    this.#columns.ended(job);
    this.#completed++;
  }

  /** What was seen since the last call. */
  take(): Metric[] {
    const now = moment();
    const seconds = (now - this.#since) / 1000;
    const metrics: Metric[] = [
      ...percentiles("claim", this.#claims),
      ...percentiles("end_to_end", this.#ends),
      ["enqueue_rate", this.#added / seconds, seconds],
      ["completion_rate", this.#completed / seconds, seconds],
      ...this.#columns.take(seconds),
    ];
    this.#added = 0;
    this.#completed = 0;
    this.#since = now;
    return metrics;
  }
}

function percentiles(name: string, latencies: Latencies): Metric[] {
  return [50, 95, 99].map((percent) => [`${name}_p${percent}_ms`, latencies.percentile(percent), WINDOW_S]);
}
