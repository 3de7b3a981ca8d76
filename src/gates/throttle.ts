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
   * How many tokens flow into the bucket in each `per`. At most 1e12. Fractions are allowed: 0.5 per second is one job
   * every two seconds. 0 or less admits nothing and denies with `rate_zero`.
   */
  rate: Value<C, number>;
  /** The time in which `rate` tokens flow in, such as `"1 minute"`. Longer than 0. */
  per: Value<C, Duration>;
  /**
   * The bucket's capacity in tokens: so many may be spent at once after a quiet time. 0, or 1e-12 to 1e12. The capacity
   * is never less than one.
   * @default `rate`
   */
  burst?: Value<C, number> | undefined;
  /**
   * `true`: jobs go evenly spaced, one every `per / rate`. It is a bucket of one token, as with `burst: 1`, that makes
   * up for late ticks.
   *
   * After a late job the next one is on time. The two are then closer than `per / rate`, by at most 250 ms and by at
   * most 0.9 of `per / rate`. No second has more jobs than the rate plus one.
   * @default false
   */
  smooth?: boolean | undefined;
  /**
   * `"sliding"`: at most `rate` tokens are spent in *any* time of length `per`. A bucket allows up to twice that. Not
   * with `burst` or `smooth`.
   *
   * A bucket may be emptied at the end of one `per` and refill during the next. In a window, a spent token comes back
   * after `per`. The window counts in 64 parts, so in a stream of jobs it may take a 64th of `per` longer.
   *
   * The limit applies to admissions. Jobs start a little later, some later than others, so a partner who counts to the
   * millisecond may see jobs of two windows in one. If so, make `per` longer (`"1100 ms"` for a partner's second), or
   * use `smooth`.
   * @default a bucket
   */
  window?: "sliding" | undefined;
}

export const THROTTLE = {
  kind: "throttle",
  fields: {
    /** Of a throttle: tokens per `per`. */
    rate: { column: "rate", rule: finiteNumber, computed: true, override: overrides.rate },
    /** Of a throttle: a duration, such as "1 minute". */
    per: {
      column: "per",
      rule: positiveDuration,
      computed: true,
      toColumn: durationSeconds,
      override: overrides.seconds,
    },
    /** Of a throttle without a sliding window: the tokens of a full bucket. */
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
        `${title}: a sliding window has rate tokens, leave ${smooth ? "smooth" : "burst"} out`,
      );
    if (smooth && burst !== undefined)
      throw new ArgumentError(`${title}: smooth means a burst of 1, leave one of the two out`);
    return smooth ? { ...options, burst: 1, smooth } : options;
  },
} satisfies GateAnatomy<"throttle">;

/**
 * Limits how fast jobs are admitted: a bucket of tokens that starts full and refills evenly. A job takes its policy's
 * `cost` (default 1) from it, and gives nothing back when it is done. In a time of `per` it lets through at most
 * `burst + rate`, by default twice the rate; with `window: "sliding"` at most `rate`.
 *
 * | rate, per | burst | at once | then |
 * |---|---|---|---|
 * | 10, "1 minute" | – | 10 | one every 6 s |
 * | 10, "1 minute" | 1 | 1 | one every 6 s |
 * | 10, "1 minute" | sliding | 10 | each a minute after one that went |
 * | 0.5, "1 second" | – | 1 | one every 2 s |
 * | 0, "1 minute" | – | 0 | none; checked again every minute |
 *
 * A job that costs more than the capacity goes when the bucket is full, and leaves it in debt. With a sliding window such
 * a job goes alone.
 *
 * @throws {PolicyDefinitionError} if an option is unknown, missing or of another form. The values of functions are checked
 * when a job is added ({@link PayloadError}).
 * @example throttle({ rate: (ctx) => ctx.ratePerMinute, per: "1 minute" });
 * @example throttle({ rate: 100, per: "1 minute", window: "sliding" });
 * @example throttle({ name: "all", scope: "policy", rate: 500, per: "1 second" });
 */
export function throttle<C = unknown>(options: ThrottleOptions<C>): Gate<C, "throttle"> {
  return declareGate(THROTTLE, options);
}
