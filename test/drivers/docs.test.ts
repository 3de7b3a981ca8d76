// The examples of docs/adding-jobs.md, as a user would run them.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { makePolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PRISMA = path.join(ROOT, "test/drivers/prisma");
const isPrismaInstalled = existsSync(path.join(PRISMA, "generated/client.ts"));

/** Examples by the name of their file, which is their first line. */
async function examplesOf(page: string): Promise<Map<string, string>> {
  const text = await readFile(path.join(ROOT, page), "utf8");
  const blocks = [...text.matchAll(/```ts\n(\/\/ (\S+\.ts)\n.*?)```/gs)];
  return new Map(blocks.map(([, code, name]) => [name as string, code as string]));
}

/** A folder in which the README's policy, this package and the libraries are found. */
async function project(t: { teardown(remove: () => Promise<void>): void }): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "examples-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await symlink(path.join(ROOT, "node_modules"), path.join(folder, "node_modules"));
  const policies = (await examplesOf("README.md")).get("policies.ts")!;
  await writeFile(path.join(folder, "package.json"), '{ "type": "module" }');
  await writeFile(path.join(folder, "policies.ts"), fromSources(policies));
  return folder;
}

/** The package is not built here, and Prisma is installed in a folder of its own. */
function fromSources(code: string): string {
  return code
    .replaceAll('"graphile-worker-dispatch-policy"', JSON.stringify(path.join(ROOT, "src/index.ts")))
    .replaceAll('"./generated/', `"${PRISMA}/generated/`)
    .replace(/"(@prisma\/[^"]+)"/g, `"${PRISMA}/node_modules/$1/dist/index.mjs"`);
}

test("the examples for other libraries add a job each", async (t) => {
  const { url, pool } = await testDatabase(t);
  const folder = await project(t);
  const { fetchEndpoint } = await import(path.join(folder, "policies.ts"));
  const utils = await makePolicyUtils({ pgPool: pool, policies: [fetchEndpoint], logger: silent });
  t.teardown(async () => utils.release());
  const examples = [...(await examplesOf("docs/adding-jobs.md"))].filter(([name]) => name.startsWith("add-"));
  t.deepEqual(
    examples.map(([name]) => name),
    ["add-kysely.ts", "add-drizzle.ts", "add-prisma.ts", "add-postgres-js.ts"],
  );
  const runnable = examples.filter(([name]) => name !== "add-prisma.ts" || isPrismaInstalled);
  for (const [name, code] of runnable) {
    await writeFile(path.join(folder, name), fromSources(code));
    const env = { ...process.env, DATABASE_URL: url };
    await t.notThrowsAsync(promisify(execFile)(process.execPath, [name], { cwd: folder, env }), name);
  }
  t.like((await utils.status()).policies[0], { policy: "fetch_endpoint", staged: runnable.length });
});
