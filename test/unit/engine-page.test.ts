// What docs/engine.md says of functions and files must be there, and what takes locks must stand in its lock order.
import { existsSync, readFileSync } from "node:fs";
import test from "ava";
import { enginePage, tables } from "../../scripts/docs/rooms.ts";
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

test("the chapters are those of the SQL", (t) => {
  t.is(page, enginePage(), "Run: npm run docs");
});

for (const title of ["Rooms and chapters", "Rules and their owners", "Lock order", "Tables", "Invariants"]) {
  test(`each SQL function that the section "${title}" names exists`, (t) => {
    const named = inBackticks(section(title)).filter((name) => /^_[a-z_]+$/.test(name));
    t.deepEqual(
      named.filter((name) => !sql.has(name)),
      [],
    );
  });
}

test("each file that the page names is there", (t) => {
  const paths = inBackticks(page).filter((it) =>
    /^(src|sql|test|scripts|docs|[a-z_]+)\/[\w./-]+\.(ts|sql|md)$/.test(it),
  );
  t.true(paths.length > 20, `${paths.length}`);
  const missing = paths.filter(
    (path) =>
      !existsSync(
        new URL(/^(src|sql|test|scripts|docs)\//.test(path) ? path : `sql/functions/${path}`, ROOT),
      ),
  );
  t.deepEqual(missing, []);
});

test("each table is in the list of tables", (t) => {
  const listed = new Set([...section("Tables").matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name!));
  t.deepEqual(
    tables().filter((name) => !listed.has(name)),
    [],
  );
});
