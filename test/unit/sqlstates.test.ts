// docs/errors.md has every error class with its code, and every SQLSTATE that a function of ours raises, and by which it is
// raised.
import { readFileSync } from "node:fs";
import test from "ava";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";

const functions = new Map(
  sqlFiles("functions")
    .flatMap(describedIn)
    .map(({ name, text }) => [name, text.replace(/^\s*--.*$/gm, "")]), // what headers say is no call
);
const [classes = "", states = ""] = readFileSync(
  new URL("../../docs/errors.md", import.meta.url),
  "utf8",
).split("## SQLSTATEs");
const rows = new Map(
  states
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) => {
      const [, codes = "", raisedBy = ""] = line.split("|");
      const [state = "", condition = state] = quoted(codes);
      return [condition, { state, raisedBy: quoted(raisedBy).toSorted() }];
    }),
);
const raised = new Set([...functions.values()].flatMap((text) => matches(text, /\berrcode = '(\w+)'/g)));

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, found]) => found as string);
}

function quoted(cell: string): string[] {
  return matches(cell, /`(\w+)`/g);
}

/** What programs call on behalf of addPolicyJob, and add_job. They have no name for people, who know those. */
const OF_PROGRAMS = new Set([
  "add_governed",
  "add_group",
  "enqueue",
  "enqueue_group",
  "recorded_load",
  "limiter_shown",
]);

/** They catch whatever the functions that they call raise, and keep it. */
const KEEPS_ERRORS = new Set(["_end_groups", "_admit", "_admit_at_once", "_pass_slots_on"]);

/** The public functions from which the code may come: those that raise it, and their callers but for those that catch it. */
function sourcesOf(code: string): string[] {
  const found = new Set<string>();
  const visit = (name: string) => {
    const text = functions.get(name) ?? "";
    if (found.has(name) || text.includes(`when sqlstate '${code}'`) || KEEPS_ERRORS.has(name)) return;
    found.add(name);
    const call = name.startsWith("_")
      ? `(?<![\\w.])(?::DISPATCH_POLICY_INTERNAL\\.)?${name}`
      : `:DISPATCH_POLICY_SCHEMA\\.${name}`;
    for (const [caller, text] of functions) if (new RegExp(`${call}\\(`).test(text)) visit(caller);
  };
  for (const [name, text] of functions) if (text.includes(`errcode = '${code}'`)) visit(name);
  return [...found].filter((name) => !name.startsWith("_") && !OF_PROGRAMS.has(name)).toSorted();
}

test("every error class is in the table, with its code", (t) => {
  const source = readFileSync(new URL("../../src/errors.ts", import.meta.url), "utf8");
  const declared = source.matchAll(/class (\w+) extends DispatchPolicyError .*?super\(\s*"(\w+)"/gs);
  t.deepEqual(
    [...classes.matchAll(/^\| `(\w+)` \| `(\w+)` \|/gm)]
      .map(([, name, code]) => `${name}: ${code}`)
      .toSorted(),
    [...declared].map(([, name, code]) => `${name}: ${code}`).toSorted(),
  );
});

test("every code that is raised is in the table, and no other", (t) => {
  t.true(raised.size > 5);
  t.deepEqual([...rows.keys()].toSorted(), [...raised].toSorted());
});

for (const code of raised) {
  test(`${code} comes from the functions that the table names`, (t) => {
    const { raisedBy } = rows.get(code) ?? { raisedBy: ["not in the table"] };
    const sources = sourcesOf(code);
    // add_jobs has no job_key_mode; PostgreSQL raises its own codes too, and some of them are caught
    if (code.startsWith("DP")) t.deepEqual(raisedBy, sources);
    else {
      t.true(raisedBy.length > 0);
      t.deepEqual(
        raisedBy.filter((name) => !sources.includes(name)),
        [],
      );
    }
  });
}
