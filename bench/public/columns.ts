// The columns that the public benchmark does not have: whether limits held, how exactly a rate was used, and how long a quiet
// tenant waited beside loud ones.
import { type Job, LOUD, QUIET } from "./jobs.ts";
import { Latencies, WINDOW_S } from "./latencies.ts";
import type { Metric } from "./lines.ts";
import type { Limits } from "./settings.ts";

export class Columns {
  readonly #limits: Limits;
  readonly #running = new Map<string, number>();
  readonly #quiet = new Latencies();
  #overruns = 0;
  #loudStarts = 0;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  started({ tenant }: Job, waitedMs: number): void {
    const running = (this.#running.get(tenant) ?? 0) + 1;
    this.#running.set(tenant, running);
    if (running > (this.#limits.atOnce ?? Number.POSITIVE_INFINITY)) this.#overruns++;
    if (tenant === QUIET) this.#quiet.record(waitedMs);
    else this.#loudStarts++;
  }

  ended({ tenant }: Job): void {
    this.#running.set(tenant, (this.#running.get(tenant) ?? 0) - 1);
  }

  /** What was found since the last call, which was so many seconds ago. */
  take(seconds: number): Metric[] {
    const { atOnce, perSecond } = this.#limits;
    const metrics: Metric[] = [["quiet_p95_ms", this.#quiet.percentile(95), WINDOW_S]];
    if (atOnce !== undefined) metrics.push(["overruns", this.#overruns, seconds]);
    if (perSecond !== undefined) {
      const allowed = perSecond * LOUD.length * seconds;
      metrics.push(["rate_error", this.#loudStarts / allowed - 1, seconds]);
    }
    this.#overruns = 0;
    this.#loudStarts = 0;
    return metrics;
  }
}
