import test from "ava";
import { type Duration, durationMs, durationSeconds, isDuration } from "../../src/duration.ts";
import { ArgumentError } from "../../src/errors.ts";

const LENGTHS: [Duration, number][] = [
  ["500 ms", 500],
  ["2 milliseconds", 2],
  ["1 second", 1000],
  ["30 seconds", 30_000],
  ["1.5 minutes", 90_000],
  ["1 minute", 60_000],
  ["2 hours", 7_200_000],
  ["1 hour", 3_600_000],
  ["1 day", 86_400_000],
  ["0.5 days", 43_200_000],
  ["0 seconds", 0],
];

for (const [duration, ms] of LENGTHS) {
  test(`"${duration}" is ${ms} ms`, (t) => {
    t.true(isDuration(duration));
    t.is(durationMs(duration), ms);
    t.is(durationSeconds(duration), ms / 1000);
  });
}

const REFUSED: unknown[] = [
  60,
  "60",
  "60s",
  "1 minuet",
  "-1 seconds",
  "1e3 seconds",
  " 1 second",
  "1 second ",
  "1  second",
  "1 Second",
  "1 mss",
  ".5 seconds",
  "1. seconds",
  "Infinity seconds",
  `${"9".repeat(400)} days`,
  "1 second\n",
  "",
  null,
  undefined,
  {},
];

for (const value of REFUSED) {
  test(`${JSON.stringify(value)?.slice(0, 40)} is no duration`, (t) => {
    t.false(isDuration(value));
    const error = t.throws(() => durationMs(value as Duration), { instanceOf: ArgumentError });
    t.is(
      error.message,
      `expected a duration such as "30 seconds" (ms, seconds, minutes, hours, days), at most a million days, got ${JSON.stringify(value)}`,
    );
    t.is(error.code, "invalid_argument");
  });
}
