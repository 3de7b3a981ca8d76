import test from "ava";
import { timeOf } from "../../src/timestamp.ts";

const at = Date.UTC(2026, 10, 23, 2, 19, 55, 378);

test("a timestamptz in milliseconds, whatever it was read as", (t) => {
  for (const value of [
    "2026-11-23 02:19:55.378+00",
    "2026-11-23 02:19:55.378999+00",
    "2026-11-23T02:19:55.378Z",
    "2026-11-23T02:19:55.378999+00:00",
    "2026-11-22T22:49:55.378001-03:30",
    "2026-11-23T08:04:55.378+05:45",
    "2026-11-22 22:49:55.378-03:30",
    at,
    new Date(at),
    { valueOf: () => at },
    Object.create({ epochMilliseconds: at }),
  ])
    t.is(timeOf(value), at, String(value));
  t.is(timeOf("0001-01-01 00:00:00+00"), Date.parse("0001-01-01T00:00:00Z"));
  t.is(timeOf("0044-03-15 12:00:00+00:49:56 BC"), Date.parse("-000043-03-15T11:10:04Z"));
  t.is(timeOf("10000-01-01 00:00:00+00"), Date.parse("+010000-01-01T00:00:00Z"));
  for (const infinite of ["infinity", Number.POSITIVE_INFINITY])
    t.is(timeOf(infinite), Number.POSITIVE_INFINITY);
  t.is(timeOf("-infinity"), Number.NEGATIVE_INFINITY);
});

test("what nobody can read is null, never an error", (t) => {
  const temporal = {
    valueOf: () => {
      throw new TypeError();
    },
  };
  const unreadable = [
    ...[null, undefined, "", "yesterday", Number.NaN, new Date(Number.NaN), {}, [], true, 5n, temporal],
    ...[Object.create(null), "23.11.2026 02:19:55.378 UTC", "11/12/2026 02:19:55 UTC", "2026-11-23 02:19:55"],
  ];
  for (const value of unreadable) t.is(timeOf(value), null);
});
