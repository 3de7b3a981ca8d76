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

/** These say which words lost. */
const SAY_SO = ["docs/engine.md", "test/unit/words.test.ts"];

test("none of the words that lost is in sql/, src/, test/ or a page", (t) => {
  const files = globSync(["sql/**/*.sql", "src/**/*.ts", "test/**/*.ts", "docs/**/*.md", "*.md"], {
    cwd: ROOT,
    exclude: ["**/node_modules/**"],
  });
  t.true(files.length > 500, `${files.length}`);
  const found = files
    .filter((file) => !SAY_SO.includes(file))
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
