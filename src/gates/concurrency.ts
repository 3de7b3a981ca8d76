import { aBoolean, wholeNumber } from "../checks/options.ts";
import { declareGate, type Gate, type GateAnatomy, type GateCommon, overrides, type Value } from "./gate.ts";

export interface ConcurrencyOptions<C> extends GateCommon<C> {
  /** How many jobs may be in flight at once. A whole number, 0 or more; 0 halts and denies with `max_zero`. */
  max: Value<C, number>;
  /**
   * `true`: `max` is the share of each worker pool. No pool runs more than `max` jobs of one scope key. All together run at
   * most `max` times the live pools that have a task of the policy.
   * @default false
   */
  perWorker?: boolean | undefined;
}

export const CONCURRENCY = {
  kind: "concurrency",
  fields: {
    /** Of a concurrency gate, or an adaptive one: the most jobs at once. */
    max: { column: "max", rule: wholeNumber(0), computed: true, override: overrides.count },
    /** Of a concurrency gate: `max` is the share of each worker pool. */
    perWorker: {
      column: "per_worker",
      rule: aBoolean,
      computed: false,
      fallback: "absent",
      toColumn: (perWorker: boolean) => perWorker || null,
    },
  },
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
 * With `perWorker`, `max` counts for each worker pool, and so does an operator's override of it. Two pools and `max: 2` admit
 * four. A pool that runs two of a scope key already does not run a third: it requeues the job, and others may take it.
 *
 * @throws {PolicyDefinitionError} if an option is unknown, missing or of another form. The values of functions are checked
 * when a job is added ({@link PayloadError}).
 * @example concurrency({ max: 5 });
 * @example concurrency({ name: "account", scope: (ctx) => ctx.account, max: 40 });
 * @example concurrency({ name: "memory", scope: "policy", max: 2, perWorker: true });
 */
export function concurrency<C = unknown>(options: ConcurrencyOptions<C>): Gate<C, "concurrency"> {
  return declareGate(CONCURRENCY, options);
}
