import { type Duration, durationMs, isDuration } from "../../duration.ts";
import { UsageError } from "../command.ts";

const DAY = /^\d{4}-\d\d-\d\d$/;
/** JavaScript reads much more as a time: "5" would be May 2001. */
const TIME = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$/;
const EXPECTED = 'a time such as 2026-11-24T22:00Z, or a duration such as "30 minutes"';

/**
 * A time, by this machine's zone if it names none, or a duration from now; `sign` -1: before now.
 *
 * @throws {UsageError} for another text
 */
export function readTime(name: string, text: string, sign: 1 | -1): Date {
  if (isDuration(text)) return new Date(Date.now() + sign * durationMs(text));
  const time = new Date(DAY.test(text) ? `${text}T00:00` : TIME.test(text) ? text : Number.NaN);
  if (Number.isNaN(time.getTime()))
    throw new UsageError(`--${name} must be ${EXPECTED}, got ${JSON.stringify(text)}`);
  return time;
}

/** @throws {UsageError} unless it is a duration */
export function readDuration(name: string, text: string): number {
  if (isDuration(text)) return durationMs(text as Duration);
  throw new UsageError(`--${name} must be a duration such as "30 seconds", got ${JSON.stringify(text)}`);
}
