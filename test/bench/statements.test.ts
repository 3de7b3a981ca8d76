// What a small turn may cost, in statements: they are most of its time, and no clock need be read for them.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import test from "ava";
import { testDatabase } from "../helpers/database.ts";

const ROOT = new URL("../../", import.meta.url);
const MOST: Record<string, number> = {
  "release that passes its slot on": 24,
  "release that passes a shared slot on": 29,
  "add at once": 24,
};

test("a release that passes a slot on, and an add whose job goes at once, run few statements", async (t) => {
  const { pool } = await testDatabase(t);
  const lacks = await pool.query("load 'auto_explain'").catch((error: Error) => error);
  if (lacks instanceof Error) {
    t.log(`Skipped: ${lacks.message}`);
    t.pass();
    return;
  }
  const { stdout } = await promisify(execFile)(process.execPath, ["bench/engine/statements.ts"], {
    cwd: ROOT,
  });
  const rows = [...stdout.matchAll(/^\| (.+) \| (\d+) \| (\d+) \|$/gm)];
  t.is(rows.length, 8);
  for (const [row, step, queries] of rows) {
    t.true(Number(queries) <= (MOST[step!] ?? Number.POSITIVE_INFINITY), row);
    t.true(
      readFileSync(new URL("docs/engine.md", ROOT), "utf8").includes(row),
      `docs/engine.md says so: ${row}`,
    );
  }
});
