// The words that the glossary of docs/engine.md has ruled out, where a name can show them.
import { globSync, readFileSync } from "node:fs";
import test from "ava";

const ROOT = new URL("../../", import.meta.url).pathname;
/** What stands there, and what to write instead. */
const LOSERS: readonly (readonly [RegExp, string])[] = [
  [
    /\b(note|notes|noted)\b(?= as (materialized )?\()/,
    "arrived, recorded, freed or consumed: what the step writes",
  ],
  [/\btold\b(?= as (materialized )?\()/, "notified, woken or arrived: what the step does"],
  [/\bis_noted\b/, "is_recorded"],
  [/\basTold\b/, "asSent, asMessage"],
  [/\bmarked_at\b/, "decayed_at or refilled_at"],
  [/\bv_held_\w+|\bconst held\b/, "locked, leased or a slot: what it has"],
  [/\bholds? (a |the |its |their )?(slots?|tokens?|locks?)\b/, "occupies, has, or has locked"],
  [/\bworkers?'s? slots?\b|\bslots of (the|its) workers?\b/, "worker slots"],
];

/** The names of steps in a folder that another change has in hand. */
const IN_HAND = "sql/functions/adopt/_move_into_staging.sql";

test("no name in sql/ or src/ is one of the words that lost", (t) => {
  const files = globSync(["sql/**/*.sql", "src/**/*.ts"], { cwd: ROOT });
  t.true(files.length > 300);
  const found = files
    .filter((file) => file !== IN_HAND)
    .flatMap((file) =>
      readFileSync(ROOT + file, "utf8")
        .split("\n")
        .flatMap((line, n) =>
          LOSERS.filter(([loser]) => loser.test(line)).map(
            ([loser, instead]) => `${file}:${n + 1}: ${loser.exec(line)?.[0]}: write ${instead}`,
          ),
        ),
    );
  t.deepEqual(found, []);
});
