import { type Duration, durationSeconds } from "../duration.ts";
import { declareGate, type Gate, type GateAnatomy, type GateCommon, type Value } from "./gate.ts";
import { finiteNumber, numberFromZero, positiveDuration } from "./options.ts";

export interface ThrottleOptions<C> extends GateCommon<C> {
  /**
   * Tokens that flow into the bucket in each `per`. A finite number; fractions count: 0.5 per second is one job every
   * two seconds. 0 or less admits nothing and denies with `rate_zero`.
   */
  rate: Value<C, number>;
  /** In what time `rate` tokens flow in, such as `"1 minute"`. Longer than 0. */
  per: Value<C, Duration>;
  /**
   * How many tokens the bucket holds: what may go at once after a quiet time. 0 or more; default `rate`. The bucket
   * never holds less than one.
   */
  burst?: Value<C, number> | undefined;
}

const THROTTLE: GateAnatomy = {
  kind: "throttle",
  fields: {
    rate: { column: "rate", rule: finiteNumber, computed: true },
    per: { column: "per", rule: positiveDuration, computed: true, toNumber: durationSeconds },
    burst: { column: "burst", rule: numberFromZero, computed: true, fallback: null },
  },
};

/**
 * Limits how fast jobs are admitted: a bucket of tokens that starts full and refills evenly. A job takes its policy's
 * `cost` from it, 1 unless said, and nothing comes back when it is done.
 *
 * | rate, per | burst | at once | then |
 * |---|---|---|---|
 * | 10, "1 minute" | – | 10 | one every 6 s |
 * | 10, "1 minute" | 1 | 1 | one every 6 s |
 * | 0.5, "1 second" | – | 1 | one every 2 s |
 * | 0, "1 minute" | – | 0 | none; looked at again every minute |
 *
 * A job dearer than the whole bucket goes when the bucket is full and leaves it in debt.
 *
 * @throws {PolicyDefinitionError} when an option is unknown, missing or of another form; what a function of the context
 * returns is checked when a job is added ({@link PayloadError})
 * @example throttle({ rate: (ctx) => ctx.ratePerMinute, per: "1 minute" });
 * @example throttle({ name: "all", scope: "policy", rate: 500, per: "1 second" });
 */
export function throttle<C = unknown>(options: ThrottleOptions<C>): Gate<C> {
  return declareGate<C>(THROTTLE, options);
}
