// Applications that replace pg's parsers, which pg has one set of for the whole process. Tests of a file are in a process,
// or a thread, of their own.
import test from "ava";
import pg from "pg";
import { ROUNDED_MS } from "../helpers/clock.ts";
import { testDatabase } from "../helpers/database.ts";
import { goTheWholeWay } from "../helpers/whole-way.ts";

const { builtins } = pg.types;

/** As Luxon's and Day.js's: an object with a `valueOf`. */
class Moment {
  readonly #ms: number;
  constructor(text: string) {
    this.#ms = Date.parse(text.replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00"));
  }
  valueOf(): number {
    return this.#ms;
  }
}

/** As Temporal's: its `valueOf` throws. */
class Instant {
  readonly epochMilliseconds: number;
  constructor(text: string) {
    this.epochMilliseconds = new Moment(text).valueOf();
  }
  valueOf(): never {
    throw new TypeError("use compare");
  }
}

type Parser = (text: string) => unknown;

for (const [what, parsers, isReadable] of [
  ["times as texts", { [builtins.TIMESTAMPTZ]: (text) => text }, true],
  ["bigints as BigInts", { [builtins.INT8]: BigInt, [builtins.NUMERIC]: Number }, true],
  ["bigints as numbers", { [builtins.INT8]: Number }, true],
  ["times as objects of a date library", { [builtins.TIMESTAMPTZ]: (text) => new Moment(text) }, true],
  ["times as Temporal's instants", { [builtins.TIMESTAMPTZ]: (text) => new Instant(text) }, true],
  ["times as what nobody can read", { [builtins.TIMESTAMPTZ]: (text) => ({ text }) }, false],
  ["times as null", { [builtins.TIMESTAMPTZ]: () => null }, false],
  ["jsonb as texts", { [builtins.JSONB]: (text) => text }, true],
] as [string, Record<number, Parser>, boolean][]) {
  test.serial(`a worker runs where pg reads ${what}`, async (t) => {
    const before = Object.keys(parsers).map(
      (oid) => [Number(oid), pg.types.getTypeParser(Number(oid))] as const,
    );
    t.teardown(() => {
      for (const [oid, parser] of before) pg.types.setTypeParser(oid, parser as never);
    });
    const database = await testDatabase(t);
    for (const [oid, parser] of Object.entries(parsers)) pg.types.setTypeParser(Number(oid), parser as never);
    // Graphile Worker writes the ids of failed jobs as JSON, which knows no BigInt
    const runs = await goTheWholeWay(t, database, { jobsFail: parsers[builtins.INT8] !== BigInt });
    for (const { admittedAt, lagMs, startedAt, payload, attempt } of runs) {
      if (payload.key === "native") continue;
      // its flag tells, whatever pg makes of times
      const told = admittedAt !== null && Math.abs(admittedAt.getTime() - Date.now()) < 120_000;
      t.true(told, `${payload.key} ${attempt}`);
      const atMost = startedAt - admittedAt!.getTime() + ROUNDED_MS;
      const isRight = lagMs !== null && lagMs >= 0 && lagMs <= atMost;
      t.is(isRight, isReadable, `${payload.key} ${attempt}: ${lagMs} of at most ${atMost}`);
    }
  });
}
