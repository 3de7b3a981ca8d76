import test from "ava";
import { interval } from "../../src/db/statements.ts";

test("an interval has no number that PostgreSQL 14 refuses, and no exponent", (t) => {
  t.is(interval(7_776_000_000), "7776000.000000 seconds", "90 days");
  t.is(interval(0.0004), "0.000000 seconds");
  t.is(interval(-1.5), "-0.001500 seconds");
  t.is(interval(1e6 * 86_400_000), "1000000 days", "the longest duration that options take");
});
