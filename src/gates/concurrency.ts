import { aBoolean, type Rule, wholeNumber } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import { declareGate, type Gate, type GateAnatomy, type GateCommon, overrides, type Value } from "./gate.ts";

export interface ConcurrencyOptions<C> extends GateCommon<C> {
  /** How many jobs may be in flight at once. A whole number, 0 or more; 0 halts and denies with `max_zero`. */
  max: Value<C, number>;
  /**
   * How many of the `max` slots a job takes while it is in flight: its gigabytes, GPUs or connections. A whole number, 1 to
   * 1,000.
   *
   * Jobs that take a different number wait in lanes of their own, so round to few different ones. A dear job is not starved:
   * those that would go after it leave free slots to it. One that takes more than a constant `max` is refused when it is added;
   * by any other `max` it waits with `cost_over_max`. Not with `perWorker`.
   * @default 1
   */
  cost?: Value<C, number> | undefined;
  /**
   * `true`: `max` is the share of each worker pool. No pool runs more than `max` jobs of one scope key.
   *
   * All together run at most `max` times the live pools that have a task of the policy.
   * @default false
   */
  perWorker?: boolean | undefined;
}

const slots: Rule = {
  expects: "a whole number from 1 to 1000 (count in larger units if it is more)",
  accepts: (value) => wholeNumber(1).accepts(value) && (value as number) <= 1000,
};

export const CONCURRENCY = {
  kind: "concurrency",
  fields: {
    /** Of a concurrency gate, or an adaptive one: the most jobs at once. */
    max: { column: "max", rule: wholeNumber(0), computed: true, override: overrides.count },
    /** It is the job's, not the limiter's: it says its lane, see `laneOf`. */
    cost: { column: "cost", rule: slots, computed: true, fallback: "absent" },
    /** Of a concurrency gate: `max` is the share of each worker pool. */
    perWorker: {
      column: "per_worker",
      rule: aBoolean,
      computed: false,
      fallback: "absent",
      toColumn: (perWorker: boolean) => perWorker || null,
    },
  },
  expand: (title, options) => {
    if (options.cost !== undefined && options.perWorker)
      throw new ArgumentError(
        `${title}: perWorker counts runs, leave cost out, or give max for all workers together`,
      );
    return options;
  },
  disagreement: ({ cost }, { max }) =>
    typeof cost === "number" && typeof max === "number" && max > 0 && cost > max
      ? `cost must be no more than max, got cost ${cost} and max ${max}: such a job would never go. Raise max, or make max a function of the context`
      : undefined,
} satisfies GateAnatomy<"concurrency">;

/**
 * Limits how many jobs are in flight at once: admitted and not yet released.
 *
 * | max | in flight | admits |
 * |---|---|---|
 * | 5 | 2 | 3 |
 * | 1 | 3 (max was lowered) | 0, until all three are done |
 * | 0 | – | 0 |
 *
 * With `cost`, jobs take several slots each. At `max: 16`, three jobs of `cost: 4` leave room for one of 4 or for four of 1.
 *
 * With `perWorker`, `max` counts for each worker pool, and so does an operator's override of it. Two pools and `max: 2` admit
 * four. A pool that runs two of a scope key already does not run a third: it requeues the job, and others may take it.
 *
 * @throws {PolicyDefinitionError} if an option is unknown, missing or of another form. The values of functions are checked
 * when a job is added ({@link PayloadError}).
 * @example concurrency({ max: 5 });
 * @example concurrency({ name: "account", scope: (ctx) => ctx.account, max: 40 });
 * @example concurrency({ name: "memory", scope: "policy", max: 64, cost: (ctx) => ctx.gigabytes });
 * @example concurrency({ name: "browsers", scope: "policy", max: 2, perWorker: true });
 */
export function concurrency<C = unknown>(options: ConcurrencyOptions<C>): Gate<C, "concurrency"> {
  return declareGate(CONCURRENCY, options);
}
