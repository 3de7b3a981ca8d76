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

const inBackticks = (text: string): string[] =>
  [...text.replace(/^```.*?^```$/gms, "").matchAll(/`([^`]+)`/g)].map(([, name]) => name!);

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

test("the rooms and chapters are those of the SQL", (t) => {
  t.is(page, enginePage(), "Run: npm run docs");
});

test("each SQL function that the page names exists", (t) => {
  const named = inBackticks(page).filter((name) => /^_[a-z_]+$/.test(name));
  t.true(named.length > 200, `${named.length}`);
  t.deepEqual(
    named.filter((name) => !sql.has(name)),
    [],
  );
});

test("each file that the page names is there", (t) => {
  const paths = inBackticks(page).filter((it) => /^[a-z_]+\/[\w./-]+\.(ts|sql|md)$/.test(it));
  t.true(paths.length > 20, `${paths.length}`);
  const missing = paths.filter(
    (path) =>
      !existsSync(
        new URL(/^(src|sql|test|scripts|docs|bench)\//.test(path) ? path : `sql/functions/${path}`, ROOT),
      ),
  );
  t.deepEqual(missing, []);
});

test("each table is in the list of tables", (t) => {
  const listed = new Set(
    [...section("Tables").matchAll(/^\| (`.+?`) \|/gm)].flatMap(([, cell]) => inBackticks(cell!)),
  );
  t.deepEqual(
    tables().filter((name) => !listed.has(name)),
    [],
  );
});
