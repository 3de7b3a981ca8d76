import {
  aBoolean,
  aTimeZone,
  check,
  finiteNumber,
  numberFromZero,
  oneOf,
  optional,
  positiveDuration,
  text,
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
  /**
   * The time in which `rate` tokens flow in, such as `"1 minute"`. Longer than 0. With `window: "calendar"` one of
   * `"1 minute"`, `"1 hour"`, `"1 day"`, `"1 week"` (from Monday) and `"1 month"`, and no function.
   */
  per: Value<C, Duration> | CalendarPeriod;
  /**
   * The bucket's capacity in tokens: so many may be spent at once after a quiet time. 0, or 1e-12 to 1e12. The capacity
   * is never less than one.
   * @default `rate`
   */
  burst?: Value<C, number> | undefined;
  /**
   * `true`: jobs go evenly spaced, one every `per / rate`.
   *
   * It is a bucket of one token, as with `burst: 1`, that makes up for late ticks. After a late job the next one is on time. The
   * two are then closer than `per / rate`, by at most 250 ms and by at most 0.9 of `per / rate`. No second has more jobs than
   * the rate plus one.
   * @default false
   */
  smooth?: boolean | undefined;
  /**
   * `"sliding"`: at most `rate` tokens are spent in *any* time of length `per`. A bucket allows up to twice that.
   * `"calendar"`: at most `rate` between two boundaries of the calendar in `timeZone`, as with a quota per day. Not with
   * `burst` or `smooth`.
   *
   * A bucket may be emptied at the end of one `per` and refill during the next. In a sliding window, a spent token comes
   * back after `per`. The window counts in 64 parts, so in a stream of jobs it may take a 64th of `per` longer.
   *
   * The limit applies to admissions. Jobs start a little later, some later than others, so a partner who counts to the
   * millisecond may see jobs of two windows in one. If so, make `per` longer (`"1100 ms"` for a partner's second), or
   * use `smooth`.
   *
   * In a calendar window, what was spent returns at the boundary, all at once. So around a boundary up to twice the rate
   * may be spent within a short time. A job dearer than the rate goes alone, at a window's beginning.
   * @default a bucket
   */
  window?: "sliding" | "calendar" | undefined;
  /**
   * The time zone of `window: "calendar"`: `"UTC"`, or an area and a place that Node and the PostgreSQL server know, such as
   * `"America/New_York"`.
   *
   * Its clocks say when a day begins, so a day may have 23 or 25 hours.
   * @default "UTC"
   */
  timeZone?: string | undefined;
}

/** The calendar's units, as a throttle with `window: "calendar"` takes them. */
export type CalendarPeriod = "1 minute" | "1 hour" | "1 day" | "1 week" | "1 month";

/** About how long each is. */
const CALENDAR: Readonly<Record<CalendarPeriod, Duration>> = {
  "1 minute": "1 minute",
  "1 hour": "1 hour",
  "1 day": "1 day",
  "1 week": "7 days",
  "1 month": "30 days",
};

export const THROTTLE = {
  kind: "throttle",
  fields: {
    /** Of a throttle: tokens per `per`. */
    rate: { column: "rate", rule: finiteNumber, computed: true, override: overrides.rate },
    /** Of a throttle without a calendar window: a duration, such as "1 minute". */
    per: {
      column: "per",
      rule: positiveDuration,
      computed: true,
      toColumn: durationSeconds,
      override: overrides.seconds,
      noOverrideWith: ["timeZone"],
    },
    /** Of a throttle without a window: the tokens of a full bucket. */
    burst: {
      column: "burst",
      rule: numberFromZero,
      computed: true,
      fallback: null,
      override: overrides.tokens,
      noOverrideWith: ["window", "timeZone"],
    },
    window: {
      column: "sliding",
      rule: oneOf("sliding"),
      computed: false,
      fallback: "absent",
      toColumn: () => true,
    },
    /** `expand` has put the unit before it. */
    timeZone: { column: "calendar", rule: text(200), computed: false, fallback: "absent" },
    smooth: { column: "smooth", rule: aBoolean, computed: false, fallback: "absent" },
  },
  expand: (title, { smooth, ...options }) => {
    optional(`${title}: smooth`, smooth, aBoolean);
    const { window, burst } = options;
    optional(`${title}: window`, window, oneOf("sliding", "calendar"));
    if (window !== undefined && (smooth || burst !== undefined))
      throw new ArgumentError(
        `${title}: a ${window} window has rate tokens, leave ${smooth ? "smooth" : "burst"} out`,
      );
    if (window === "calendar") return { ...options, ...calendarOf(title, options) };
    if (options.timeZone !== undefined)
      throw new ArgumentError(`${title}: only window "calendar" has a time zone, leave timeZone out`);
    if (smooth && burst !== undefined)
      throw new ArgumentError(`${title}: smooth means a burst of 1, leave one of the two out`);
    return smooth ? { ...options, burst: 1, smooth } : options;
  },
} satisfies GateAnatomy<"throttle">;

/** The options that stand for those of a calendar window. */
function calendarOf(title: string, { per, timeZone = "UTC" }: Readonly<Record<string, unknown>>) {
  const units = oneOf(...Object.keys(CALENDAR));
  check(`${title}: per`, per, { ...units, expects: `${units.expects} with window "calendar"` });
  check(`${title}: timeZone`, timeZone, aTimeZone);
  const unit = (per as CalendarPeriod).slice("1 ".length);
  return { per: CALENDAR[per as CalendarPeriod], window: undefined, timeZone: `${unit} ${timeZone}` };
}

/**
 * Limits how fast jobs are admitted: a bucket of tokens that starts full and refills evenly. A job takes its policy's `cost`
 * (default 1) from it, and frees nothing when it is done.
 *
 * In a time of `per` it lets through at most `burst + rate`, by default twice the rate; with `window: "sliding"` at most `rate`.
 * With `window: "calendar"` it lets `rate` through in each minute, hour, day, week or month of a time zone.
 *
 * | rate, per | burst | at once | then |
 * |---|---|---|---|
 * | 10, "1 minute" | – | 10 | one every 6 s |
 * | 10, "1 minute" | 1 | 1 | one every 6 s |
 * | 10, "1 minute" | sliding | 10 | each a minute after one that went |
 * | 10, "1 day" | calendar | 10 | 10 from midnight on |
 * | 0.5, "1 second" | – | 1 | one every 2 s |
 * | 0, "1 minute" | – | 0 | none; checked again every minute |
 *
 * A job that costs more than the capacity goes when the bucket is full, and leaves it in debt. With a window such a job
 * goes alone.
 *
 * @throws {PolicyDefinitionError} if an option is unknown, missing or of another form. The values of functions are checked
 * when a job is added ({@link PayloadError}).
 * @example throttle({ rate: (ctx) => ctx.ratePerMinute, per: "1 minute" });
 * @example throttle({ rate: 100, per: "1 minute", window: "sliding" });
 * @example throttle({ rate: 10_000, per: "1 day", window: "calendar", timeZone: "America/New_York" });
 * @example throttle({ name: "all", scope: "policy", rate: 500, per: "1 second" });
 */
export function throttle<C = unknown>(options: ThrottleOptions<C>): Gate<C, "throttle"> {
  return declareGate(THROTTLE, options);
}
