// What docs/engine.md says of functions and files must be there, and what takes locks must stand in its lock order.
import { existsSync, readFileSync } from "node:fs";
import test from "ava";
import { describedIn, sqlFiles } from "../../src/db/sql-files.ts";

const ROOT = new URL("../../", import.meta.url);
const page = readFileSync(new URL("docs/engine.md", ROOT), "utf8");
const functions = sqlFiles("functions").flatMap(describedIn);
const sql = new Set(functions.map(({ name }) => name));

function section(title: string): string {
  const from = page.indexOf(`\n## ${title}\n`);
  if (from < 0) throw new Error(`docs/engine.md has no section "${title}"`);
  const to = page.indexOf("\n## ", from + 1);
  return page.slice(from, to);
}

const inBackticks = (text: string): string[] => [...text.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);

test("each SQL function that locks rows or tables is in the lock order", (t) => {
  const lockOrder = new Set(inBackticks(section("Lock order")));
  const missing = functions
    .filter(({ text }) =>
      /\bfor (no key )?update\b|\bfor (key )?share\b|\block table\b/.test(text.replace(/--.*$/gm, "")),
    )
    .map(({ name }) => name)
    .filter((name) => !lockOrder.has(name));
  t.deepEqual(missing, []);
});

for (const title of ["Which function calls which", "Lock order", "Tables", "Invariants"]) {
  test(`each SQL function that the section "${title}" names exists`, (t) => {
    const named = inBackticks(section(title)).filter((name) => /^_[a-z_]+$/.test(name));
    t.deepEqual(
      named.filter((name) => !sql.has(name)),
      [],
    );
  });
}

test("each function in the call graph stands in the file that its row names", (t) => {
  const wrong: string[] = [];
  for (const row of section("Which function calls which").matchAll(
    /^\| [^|]* \| ([^|]+) \| ([^|]+) \| [^|]*\|$/gm,
  )) {
    const paths = inBackticks(row[2]!).filter((name) => name.includes("/"));
    if (paths.length === 0) continue;
    const texts = paths.map((path) => {
      const file = new URL(/^(src|sql|test)\//.test(path) ? path : `sql/functions/${path}`, ROOT);
      if (!existsSync(file)) wrong.push(path);
      return existsSync(file) ? readFileSync(file, "utf8") : "";
    });
    for (const name of inBackticks(row[1]!))
      if (!texts.some((text) => new RegExp(`\\b${name}\\b`).test(text))) wrong.push(name);
  }
  t.deepEqual(wrong, []);
});

test("each owner of a rule is there", (t) => {
  const paths = inBackticks(section("Rules and their owners")).filter((name) => name.includes("/"));
  t.true(paths.length > 20, `${paths.length}`);
  const missing = paths.filter(
    (path) => !existsSync(new URL(/^(src|sql|test)\//.test(path) ? path : `sql/functions/${path}`, ROOT)),
  );
  t.deepEqual(missing, []);
});

test("each table is in the list of tables", (t) => {
  const tables = [
    ...readFileSync(new URL("sql/migrations/000001_policies_and_partitions.sql", ROOT), "utf8").matchAll(
      /^create (?:unlogged )?table (\w+)/gm,
    ),
  ].map(([, name]) => name!);
  const listed = new Set([...section("Tables").matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name!));
  t.true(tables.length > 10);
  t.deepEqual(
    tables.filter((name) => !listed.has(name)),
    [],
  );
});
