import { types } from "node:util";

/** PostgreSQL writes a timestamptz like this, under `DateStyle` ISO and in JSON. */
const ISO =
  /^(\d{4,6})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:Z|([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?)( BC)?$/;

/** PostgreSQL writes most of them in JSON like this. JavaScript can read it, in a tenth of the time. */
const PLAIN = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?[+-]\d\d:\d\d$/;

/**
 * A timestamptz that pg has read, in milliseconds since 1970, possibly infinite. Null if it cannot be read.
 *
 * The application may have replaced pg's parsers, which the whole process shares. They may return a text, a number of
 * milliseconds, or an object of a date library. A `DateStyle` other than ISO also changes the text.
 */
export function timeOf(value: unknown): number | null {
  if (typeof value === "string") return timeOfText(value);
  if (typeof value === "number") return orNull(value);
  if (typeof value !== "object" || value === null) return null;
  if (types.isDate(value)) return orNull(value.getTime());
  const { epochMilliseconds } = value as { epochMilliseconds?: unknown };
  if (typeof epochMilliseconds === "number") return orNull(epochMilliseconds);
  try {
    return Array.isArray(value) ? null : orNull(Number(value));
  } catch {
    return null; // it cannot be converted to a number
  }
}

function timeOfText(text: string): number | null {
  if (text === "infinity") return Number.POSITIVE_INFINITY;
  if (text === "-infinity") return Number.NEGATIVE_INFINITY;
  if (PLAIN.test(text)) return orNull(Date.parse(text));
  const found = ISO.exec(text);
  if (!found) return null;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [, , , , , , , fraction = "", sign, hours = 0, minutes = 0, seconds = 0, isBefore] = found;
  const date = new Date(0);
  date.setUTCFullYear(isBefore ? 1 - year : year, month - 1, day);
  date.setUTCHours(hour, minute, second, Number(fraction.slice(0, 3).padEnd(3, "0")));
  const ahead = ((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000;
  return orNull(date.getTime() - (sign === "-" ? -ahead : ahead));
}

function orNull(time: number): number | null {
  return Number.isNaN(time) ? null : time;
}
