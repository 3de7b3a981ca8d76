// The recipes of docs/engine.md, followed in a copy of the package: each changes as many files of code as the page says, and
// does what it is for.
import { execFile } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import type { Edits } from "../fixtures/recipes/recipe.ts";
import { testDatabase } from "../helpers/database.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const FIXTURES = path.join(ROOT, "test/fixtures/recipes");

/** Of each folder in test/fixtures/recipes the title of its recipe, and what its check.ts says. */
const RECIPES = {
  refill: {
    title: "Change how a throttle refills",
    says: { admitted: [2, 2, 2, 4, 4, 6], waits: 240, reason: "throttle_empty" },
  },
  reason: {
    title: "Add a reason",
    says: {
      denied: { one_at_a_time: 2 },
      dropped: 2,
      reason: "one_at_a_time",
      sentence:
        "Nobody admits its jobs: no live worker runs the loop of this policy, and the crontab's tick does not come. " +
        'It waits for gate "concurrency" of a, which lets one job go after the other, the oldest',
      shown: ["one_at_a_time", "one_at_a_time", "one_at_a_time"],
      kind: "cap",
    },
  },
  gate: {
    title: "Add a gate",
    says: {
      kind: "worker_share",
      half: 5,
      reason: "worker_share_full",
      wakesLoop: [false, true],
      ofTwo: 10,
      more: 16,
      uncommented: [],
    },
  },
  column: {
    title: "Add a column that a job brings",
    says: {
      jobs: { alone: 1, "among many": 30, "at once": 1, "with a key": 1 },
      admitted: [false, true],
    },
  },
  feature: {
    title: "Add a feature that reads events",
    says: {
      before: [
        "brief: 1 came",
        "brief: 1 left",
        "brief: 1 waits",
        "told: 2 admitted",
        "told: 1 came",
        "told: 1 waits",
      ],
      removed: true,
      after: ["told: 2 admitted", "told: 1 came", "told: 1 waits"],
    },
  },
  verb: {
    title: "Add a verb",
    says: {
      dry: { matched: 1, changed: 0, partitions: 0, staged: 0, inFlight: 0 },
      changed: 1,
      wrong: 'unknown option "polcy" of note: did you mean "policy"?',
      help: "Leave a note about a policy in the audit.",
      said: "Noted about policy one.\n",
      list: true,
      form: true,
      done: 303,
      noted: ["by the method", "by the command", "by the form"],
    },
  },
} as const;

const page = readFileSync(path.join(ROOT, "docs/engine.md"), "utf8");
const copy = await mkdtemp(path.join(os.tmpdir(), "recipes-"));
test.after.always(() => rm(copy, { recursive: true, force: true }));

const run = (args: readonly string[], env: NodeJS.ProcessEnv = process.env) =>
  promisify(execFile)(process.execPath, args, { cwd: copy, env });

/** The number in the recipe's line "Files of code: 5." */
function filesOf(title: string): number {
  const [, recipe = ""] = page.split(`\n### ${title}\n`);
  return Number(/^Files of code: (\d+)\./m.exec(recipe.split("\n### ")[0] ?? "")?.[1]);
}

async function change(name: string, edits: readonly (readonly [from: string, to: string])[]): Promise<void> {
  const file = path.join(copy, name);
  let text = await readFile(file, "utf8");
  for (const [from, to] of edits) {
    if (text.split(from).length !== 2) throw new Error(`${name} does not have "${from}" once`);
    text = text.replace(from, () => to);
  }
  await writeFile(file, text);
}

test.before("all recipes together compile", async (t) => {
  for (const name of ["src", "sql", "tasks", "package.json", "tsconfig.json"])
    await cp(path.join(ROOT, name), path.join(copy, name), { recursive: true });
  await symlink(path.join(ROOT, "node_modules"), path.join(copy, "node_modules"));
  await mkdir(path.join(copy, "test"));
  await cp(path.join(FIXTURES, "world.ts"), path.join(copy, "test/world.ts"));
  for (const [recipe, { title }] of Object.entries(RECIPES)) {
    const folder = path.join(FIXTURES, recipe);
    const made = globSync("{src,sql}/**/*.{ts,sql}", { cwd: folder });
    const { EDITS } = (await import(path.join(folder, "edits.ts"))) as { EDITS: Edits };
    t.is(made.length + Object.keys(EDITS).length, filesOf(title), title);
    for (const name of made) await cp(path.join(folder, name), path.join(copy, name));
    for (const [name, edits] of Object.entries(EDITS)) await change(name, edits);
    await cp(path.join(folder, "check.ts"), path.join(copy, "test", `${recipe}.ts`));
  }
  await t.notThrowsAsync(run(["node_modules/typescript/bin/tsc", "-p", "."]));
});

for (const [recipe, { title, says }] of Object.entries(RECIPES))
  test(title, async (t) => {
    t.timeout(120_000);
    const { url } = await testDatabase(t); // without the recipes: their migrations add to what is there
    const { stdout } = await run([`test/${recipe}.ts`], { ...process.env, DATABASE_URL: url });
    t.deepEqual(JSON.parse(stdout), says);
  });
