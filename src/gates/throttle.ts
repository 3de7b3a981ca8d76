import {
  aBoolean,
  finiteNumber,
  numberFromZero,
  oneOf,
  optional,
  positiveDuration,
} from "../checks/options.ts";
import { type Duration, durationSeconds } from "../duration.ts";
import { ArgumentError } from "../errors.ts";
import { declareGate, type Gate, type GateAnatomy, type GateCommon, overrides, type Value } from "./gate.ts";

export interface ThrottleOptions<C> extends GateCommon<C> {
  /**
   * Tokens that flow into the bucket in each `per`. At most 1e12; fractions count: 0.5 per second is one job every
   * two seconds. 0 or less admits nothing and denies with `rate_zero`.
   */
  rate: Value<C, number>;
  /** In what time `rate` tokens flow in, such as `"1 minute"`. Longer than 0. */
  per: Value<C, Duration>;
  /**
   * How many tokens the bucket holds: what may go at once after a quiet time. 0, or 1e-12 to 1e12; default `rate`. The bucket
   * never holds less than one.
   */
  burst?: Value<C, number> | undefined;
  /**
   * `true`: jobs go evenly spaced, one every `per / rate`: a bucket of one token, as with `burst: 1`, that makes up for
   * passes that come late. A job that went late is followed by one that is in time, up to a quarter of a second and nine
   * tenths of `per / rate` closer. No second has more than the rate and one. Default `false`.
   */
  smooth?: boolean | undefined;
  /**
   * `"sliding"`: no more than `rate` admitted in *any* time of length `per`. A bucket allows up to twice
   * that: it may be emptied at the end of one `per` and refill during the next. What was spent comes back `per` later;
   * the window remembers it in 64 parts, so that up to a 64th of `per` longer where jobs go in a stream. Held at
   * admission: jobs start a little later, some later than others, so that a partner who counts to the millisecond may
   * find jobs of two windows in one of its own. Give `per` that much more (`"1100 ms"` for a partner's second), or use
   * `smooth`. Not with `burst` or `smooth`. Default: a bucket.
   */
  window?: "sliding" | undefined;
}

export const THROTTLE: GateAnatomy<"throttle"> = {
  kind: "throttle",
  fields: {
    rate: { column: "rate", rule: finiteNumber, computed: true, override: overrides.rate },
    per: {
      column: "per",
      rule: positiveDuration,
      computed: true,
      toColumn: durationSeconds,
      override: overrides.seconds,
    },
    burst: {
      column: "burst",
      rule: numberFromZero,
      computed: true,
      fallback: null,
      override: overrides.tokens,
      noOverrideWith: "window",
    },
    window: {
      column: "sliding",
      rule: oneOf("sliding"),
      computed: false,
      fallback: "absent",
      toColumn: () => true,
    },
    smooth: { column: "smooth", rule: aBoolean, computed: false, fallback: "absent" },
  },
  expand: (title, { smooth, ...options }) => {
    optional(`${title}: smooth`, smooth, aBoolean);
    const { window, burst } = options;
    if (window !== undefined && (smooth || burst !== undefined))
      throw new ArgumentError(
        `${title}: a sliding window holds rate, leave ${smooth ? "smooth" : "burst"} out`,
      );
    if (smooth && burst !== undefined)
      throw new ArgumentError(`${title}: smooth means a burst of 1, leave one of the two out`);
    return smooth ? { ...options, burst: 1, smooth } : options;
  },
};

/**
 * Limits how fast jobs are admitted: a bucket of tokens that starts full and refills evenly. A job takes its policy's
 * `cost` from it, 1 unless said, and nothing comes back when it is done. Over a time of `per` it lets through up to
 * `burst + rate`, twice the rate by default; `window: "sliding"` never more than `rate`.
 *
 * | rate, per | burst | at once | then |
 * |---|---|---|---|
 * | 10, "1 minute" | – | 10 | one every 6 s |
 * | 10, "1 minute" | 1 | 1 | one every 6 s |
 * | 10, "1 minute" | sliding | 10 | each a minute after one that went |
 * | 0.5, "1 second" | – | 1 | one every 2 s |
 * | 0, "1 minute" | – | 0 | none; looked at again every minute |
 *
 * A job dearer than the whole bucket goes when the bucket is full and leaves it in debt; one dearer than a sliding
 * window goes alone.
 *
 * @throws {PolicyDefinitionError} when an option is unknown, missing or of another form; what a function of the context
 * returns is checked when a job is added ({@link PayloadError})
 * @example throttle({ rate: (ctx) => ctx.ratePerMinute, per: "1 minute" });
 * @example throttle({ rate: 100, per: "1 minute", window: "sliding" });
 * @example throttle({ name: "all", scope: "policy", rate: 500, per: "1 second" });
 */
export function throttle<C = unknown>(options: ThrottleOptions<C>): Gate<C, "throttle"> {
  return declareGate(THROTTLE, options);
}
