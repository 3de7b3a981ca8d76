// The reasons why jobs wait are the same set in TypeScript, in SQL and in docs/operating.md.
import { readFileSync } from "node:fs";
import test from "ava";
import { sqlFiles } from "../../src/db/sql-files.ts";
import { CAP_KINDS } from "../../src/gates/index.ts";
import { REASONS } from "../../src/operate/look.ts";

/** Where a reason is set, by a CASE. Whatever else is a text between `then` or `else` and the next word is no reason. */
const SOURCES = [
  "admit/_lacks.sql",
  "admit/_lack_reason.sql",
  "admit/_verdicts.sql",
  "operate/_shown_reason.sql",
  "views/staged_jobs.sql",
] as const;
/** Texts of these CASEs that are values of other columns. */
const NO_REASONS = ["infinity"];

const files = [
  ...sqlFiles("functions"),
  ...sqlFiles("views").map(({ name, text }) => ({ name: `views/${name}`, text })),
].map(({ name, text }) => ({ name, text: text.replace(/--.*$/gm, "") }));
const reasons = [...REASONS].toSorted();

function textOf(source: string): string {
  const file = files.find(({ name }) => name === source);
  if (!file) throw new Error(`No file ${source}: ${files.map(({ name }) => name).join(", ")}`);
  return file.text;
}

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, found]) => found as string);
}

test("SQL produces the reasons of the list, and no other", (t) => {
  const produced = SOURCES.flatMap((source) => {
    const text = textOf(source);
    const whole = matches(text, /\b(?:then|else) '(\w+)'(?!\s*\|\|)/g);
    const byKind = /else kind \|\| '_full'/.test(text)
      ? [...CAP_KINDS, "ahead"].map((kind) => `${kind}_full`)
      : [];
    return [...whole, ...byKind];
  });
  const known = new Set(produced.filter((text) => !NO_REASONS.includes(text)));
  t.deepEqual([...known].toSorted(), reasons);
});

test("whatever else in SQL compares or sets a reason names one of the list", (t) => {
  const named = files.flatMap(({ text }) => [
    ...matches(text, /reason\s*(?:=|<>)\s*'(\w+)'/g),
    ...matches(text, /reason in \(([^)]*)\)/g).flatMap((list) => matches(list, /'(\w+)'/g)),
    ...matches(text, /array\[([^\]]*)\](?:\s*end)? as reasons/g).flatMap((list) => matches(list, /'(\w+)'/g)),
  ]);
  t.true(named.length > 3, named.join());
  const unknown = named.filter((reason) => reason !== "_full" && !reasons.includes(reason as never));
  t.deepEqual(unknown, []);
});

test("docs/operating.md explains each reason of the list, and no other", (t) => {
  const page = readFileSync(new URL("../../docs/operating.md", import.meta.url), "utf8");
  const [, table = ""] = page.split("| reason |");
  const [rows = ""] = table.split("\n\n");
  t.deepEqual(matches(rows, /^\| `(\w+)`/gm).toSorted(), reasons);
});
