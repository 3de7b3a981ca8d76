// The reasons why jobs wait are the same set in TypeScript and in SQL. test/pages/reasons.test.ts has those of docs/operating.md.
import { readFileSync } from "node:fs";
import test from "ava";
import { listedReasons, operatingPage } from "../../scripts/docs/reasons.ts";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";
import { CAP_KINDS } from "../../src/gates/index.ts";
import { REASON_KINDS, REASONS } from "../../src/policy/reasons.ts";

const ROOT = new URL("../../", import.meta.url);

/** Where a reason is set, by a CASE. Whatever else is a text between `then` or `else` and the next word is no reason. */
const SOURCES = [
  "_charge",
  "_lack_reason",
  "_turn_reason",
  "_wait_in_order",
  "_shown_reason",
  "staged_jobs",
] as const;
/** Texts of these CASEs that are values of other columns. */
const NO_REASONS = ["infinity", "workers", "gate"];

const files = [...sqlFiles("functions"), ...sqlFiles("views")]
  .flatMap(describedIn)
  .map(({ name, text }) => ({ name, text: text.replace(/--.*$/gm, "") }));
const reasons = [...REASONS].toSorted();

function textOf(source: string): string {
  const file = files.find(({ name }) => name === source);
  if (!file) throw new Error(`No function or view ${source}`);
  return file.text;
}

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, found]) => found as string);
}

test("SQL produces the reasons of the list, and no other", (t) => {
  const produced = SOURCES.flatMap((source) => {
    const text = textOf(source);
    const whole = matches(text, /(?:\b(?:then|else)|denied_reason =) '(\w+)'(?!\s*\|\|)/g);
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
  ]);
  t.true(named.length > 3, named.join());
  const unknown = named.filter((reason) => reason !== "_full" && !reasons.includes(reason as never));
  t.deepEqual(unknown, []);
});

const listed = listedReasons();

test("SQL has each reason and its kind, and words for it", (t) => {
  t.deepEqual(Object.fromEntries(listed.map(({ reason, kind }) => [reason, kind])), REASON_KINDS);
  t.is(listed.length, REASONS.length);
});

test("SQL says of each reason who has to act, and docs/operating.md has that", (t) => {
  const source = readFileSync(new URL("src/operate/explain.ts", ROOT), "utf8");
  const [, union = ""] = /^ {2}acts: (.+);$/m.exec(source) ?? [];
  t.deepEqual([...new Set(listed.map(({ acts }) => acts))].toSorted(), matches(union, /"(\w+)"/g).toSorted());
  t.is(readFileSync(new URL("docs/operating.md", ROOT), "utf8"), operatingPage(), "Run: npm run docs");
});

test("explain has all the words that the sentences need", (t) => {
  const [, words = ""] = textOf("_sentence").split("_said(");
  const known = new Set(matches(words, /'(\w+)',/g));
  const needed = listed.flatMap(({ sentence }) => matches(sentence, /\{(\w+)\}/g));
  t.true(needed.length > 10, needed.join());
  t.deepEqual(
    needed.filter((word) => !known.has(word)),
    [],
  );
});

test("explain knows each reason", (t) => {
  // a stop's, a gate's and a turn's come with their functions
  const wait = textOf("_explained_wait");
  t.true(wait.includes("_stop_of(") && textOf("_stop_of").includes("_shown_reason("));
  t.true(wait.includes("_explained_gates(") && textOf("_explained_gates").includes("_lack_reason("));
  t.true(wait.includes("= 'turn'"));
  const own = listed.filter(({ kind }) => kind === "job" || kind === "order");
  t.true(own.length > 3, own.join());
  t.deepEqual(
    own.filter(({ reason }) => !wait.includes(`'${reason}'`)),
    [],
  );
});
