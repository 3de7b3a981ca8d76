// The recipe "Add a gate" of docs/engine.md, followed in a copy of the package.
import { execFile } from "node:child_process";
import { globSync, readdirSync } from "node:fs";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { EDITS } from "../fixtures/new-gate/edits.ts";
import { testDatabase } from "../helpers/database.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const FIXTURE = path.join(ROOT, "test/fixtures/new-gate");
/** The six of the recipe, and two because the gate's room grows when a worker pool joins. */
const FILES = 8;

test("a new gate takes the recipe's files: it type-checks, limits, says why, and an operator can change it", async (t) => {
  t.timeout(120_000);
  const made = globSync("{src,sql}/**/*.{ts,sql}", { cwd: FIXTURE });
  t.true(made.length > 0);
  t.is(made.length + Object.keys(EDITS).length, FILES);

  const copy = await mkdtemp(path.join(os.tmpdir(), "new-gate-"));
  t.teardown(() => rm(copy, { recursive: true, force: true }));
  for (const name of ["src", "sql", "tasks", "package.json", "tsconfig.json"])
    await cp(path.join(ROOT, name), path.join(copy, name), { recursive: true });
  await symlink(path.join(ROOT, "node_modules"), path.join(copy, "node_modules"));
  for (const name of readdirSync(FIXTURE).filter((entry) => entry !== "edits.ts"))
    await cp(path.join(FIXTURE, name), path.join(copy, name), { recursive: true });
  for (const [name, edits] of Object.entries(EDITS)) {
    const file = path.join(copy, name);
    let text = await readFile(file, "utf8");
    for (const [from, to] of edits) {
      t.is(text.split(from).length, 2, `${name} has "${from}" once`);
      text = text.replace(from, () => to);
    }
    await writeFile(file, text);
  }

  const { url } = await testDatabase(t); // without the gate: the migration adds it to what is there
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, args, { cwd: copy, env: { ...process.env, DATABASE_URL: url } });
  await t.notThrowsAsync(run("node_modules/typescript/bin/tsc", "-p", "."));
  const { stdout } = await run("main.ts");
  t.deepEqual(JSON.parse(stdout), {
    half: 5,
    reason: "worker_share_full",
    wakesLoop: [false, true],
    ofTwo: 10,
    more: 16,
    uncommented: [],
  });
});
