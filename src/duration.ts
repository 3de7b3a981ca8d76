import { ArgumentError } from "./errors.ts";

/** The units of a {@link Duration}. */
type Unit =
  | "ms"
  | "millisecond"
  | "milliseconds"
  | "second"
  | "seconds"
  | "minute"
  | "minutes"
  | "hour"
  | "hours"
  | "day"
  | "days";

/**
 * A length of time: a number, a space and a unit, such as `"30 seconds"`, `"1.5 minutes"`, `"500 ms"`.
 *
 * Bare numbers, signs and exponents are refused, by the type and at run time: in `per: 60` some read seconds, and others
 * milliseconds. Only options whose names end in `Ms` take numbers.
 */
export type Duration = `${number} ${Unit}`;

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  millisecond: 1,
  second: 1000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
};
const FORM = /^(\d+(?:\.\d+)?) (ms|millisecond|second|minute|hour|day)(s?)$/;

/** 2,738 years: PostgreSQL can add that to any likely date. */
const MOST_MS = 1e6 * 86_400_000;

/** For error messages: completes "expected …". */
export const DURATION_EXPECTED =
  'a duration such as "30 seconds" (ms, seconds, minutes, hours, days), at most a million days';

export function isDuration(value: unknown): value is Duration {
  return parse(value) !== undefined;
}

/**
 * The duration in milliseconds.
 *
 * @throws {ArgumentError} if it is no {@link Duration}
 * @example durationMs("1.5 seconds"); // 1500
 */
export function durationMs(duration: Duration): number {
  const ms = parse(duration);
  if (ms === undefined)
    throw new ArgumentError(`expected ${DURATION_EXPECTED}, got ${JSON.stringify(duration)}`);
  return ms;
}

/**
 * The duration in seconds.
 *
 * @throws {ArgumentError} if it is no {@link Duration}
 * @example durationSeconds("2 minutes"); // 120
 */
export function durationSeconds(duration: Duration): number {
  return durationMs(duration) / 1000;
}

/** The longest time that a timer can run, some 24 days. Node ends a longer one after 1 ms. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

function parse(value: unknown): number | undefined {
  if (typeof value !== "string") return undefined;
  const [, amount, unit, plural] = FORM.exec(value) ?? [];
  if (amount === undefined || unit === undefined || (unit === "ms" && plural === "s")) return undefined;
  const ms = Number(amount) * (UNIT_MS[unit] as number);
  return ms <= MOST_MS ? ms : undefined;
}
