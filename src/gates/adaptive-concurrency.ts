import { positiveNumber, type Rule, wholeNumber } from "../checks/options.ts";
import { declareGate, type Gate, type GateAnatomy, type GateCommon, overrides, type Value } from "./gate.ts";

export interface AdaptiveConcurrencyOptions<C> extends GateCommon<C> {
  /**
   * The limit to start from. While nothing is in flight, at least this many jobs are allowed, so that a limit that has
   * shrunk can notice an improvement. A whole number, 1 or more, no less than `min` and no more than `max`.
   */
  initialMax: Value<C, number>;
  /**
   * The queue lag, in milliseconds, above which the workers count as overloaded. The lag is the wait in Graphile Worker,
   * from admission (or `run_at`, if later) to the start. Above 0.
   */
  targetLagMs: Value<C, number>;
  /**
   * The limit never shrinks below this. A whole number, 1 or more.
   * @default 1
   */
  min?: Value<C, number> | undefined;
  /**
   * The limit never grows above this. A whole number, no less than `min`.
   * @default no bound
   */
  max?: Value<C, number> | undefined;
  /**
   * The share of the newest lag in the moving average. Above 0, at most 1.
   * @default 0.5
   */
  ewmaAlpha?: number | undefined;
  /**
   * When a job fails, the limit is multiplied by this and rounded down. Between 0 and 1.
   * @default 0.5
   */
  failureDecreaseFactor?: number | undefined;
  /**
   * When the average is over target, the limit is multiplied by this and rounded down. Between 0 and 1.
   * @default 0.95
   */
  overloadDecreaseFactor?: number | undefined;
}

const alpha: Rule = {
  expects: "a number above 0 and at most 1",
  accepts: (value) => positiveNumber.accepts(value) && (value as number) <= 1,
};
const factor: Rule = {
  expects: "a number above 0 and below 1",
  accepts: (value) => positiveNumber.accepts(value) && (value as number) < 1,
};

export const ADAPTIVE_CONCURRENCY = {
  kind: "adaptive_concurrency",
  fields: {
    /** Of an adaptive gate: the limit to start from, in jobs. */
    initialMax: { column: "initial_max", rule: wholeNumber(1), computed: true, override: overrides.count },
    /** Of an adaptive gate: milliseconds. */
    targetLagMs: {
      column: "target_lag_ms",
      rule: positiveNumber,
      computed: true,
      override: overrides.milliseconds,
    },
    /** Of an adaptive gate: the limit never shrinks below this, in jobs. */
    min: { column: "min", rule: wholeNumber(1), computed: true, fallback: 1, override: overrides.count },
    max: { column: "max", rule: wholeNumber(1), computed: true, fallback: null, override: overrides.count },
    ewmaAlpha: { column: "ewma_alpha", rule: alpha, computed: false, fallback: 0.5 },
    failureDecreaseFactor: {
      column: "failure_decrease_factor",
      rule: factor,
      computed: false,
      fallback: 0.5,
    },
    overloadDecreaseFactor: {
      column: "overload_decrease_factor",
      rule: factor,
      computed: false,
      fallback: 0.95,
    },
  },
  disagreement: ({ initial_max: initialMax, min, max }) => {
    const exceeds = (low: unknown, high: unknown) =>
      typeof low === "number" && typeof high === "number" && low > high;
    if (exceeds(min, initialMax))
      return `min must be no more than initialMax, got min ${min} and initialMax ${initialMax}`;
    if (exceeds(min, max)) return `max must be no less than min, got max ${max} and min ${min}`;
    if (exceeds(initialMax, max))
      return `max must be no less than initialMax, got max ${max} and initialMax ${initialMax}`;
    return undefined;
  },
} satisfies GateAnatomy<"adaptive_concurrency">;

/**
 * Limits how many jobs are in flight at once, by a limit that adapts itself. If at least half of it is in flight, it
 * grows by one with each job that starts promptly. It shrinks when jobs fail or wait for a worker.
 *
 * | limit | a job | limit then |
 * |---|---|---|
 * | 4, all in flight | started promptly | 5 |
 * | 10 | failed | 5 |
 * | 100 | over the target | 95 |
 * | 1 = min | failed | 1 |
 *
 * It shrinks at most once per round of jobs. The wait in staging does not count as lag, because this package causes it.
 *
 * @throws {PolicyDefinitionError} if an option is unknown, missing or of another form, or `min`, `initialMax` and `max`
 * are not in that order. The values of functions are checked when a job is added ({@link PayloadError}).
 * @example adaptiveConcurrency({ initialMax: 5, targetLagMs: 500, max: 50 });
 */
export function adaptiveConcurrency<C = unknown>(
  options: AdaptiveConcurrencyOptions<C>,
): Gate<C, "adaptive_concurrency"> {
  return declareGate(ADAPTIVE_CONCURRENCY, options);
}
