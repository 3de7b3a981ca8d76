// The examples of docs/adding-jobs.md, as a user would run them.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { makePolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { examplesOf, fromSources, PRISMA, project } from "../helpers/examples.ts";
import { silent } from "../helpers/silent.ts";

const isPrismaInstalled = existsSync(path.join(PRISMA, "generated/client.ts"));

test("the examples of transactions add a job each", async (t) => {
  const { url, pool } = await testDatabase(t);
  const folder = await project(t);
  const { fetchEndpoint } = await import(path.join(folder, "policies.ts"));
  const utils = await makePolicyUtils({ pgPool: pool, policies: [fetchEndpoint], logger: silent });
  t.teardown(async () => utils.release());
  const examples = [...(await examplesOf("docs/adding-jobs.md"))].filter(([name]) => name.startsWith("add-"));
  t.deepEqual(
    examples.map(([name]) => name),
    ["add-kysely.ts", "add-drizzle.ts", "add-prisma.ts", "add-postgres-js.ts", "add-pg.ts"],
  );
  const runnable = examples.filter(([name]) => name !== "add-prisma.ts" || isPrismaInstalled);
  for (const [name, code] of runnable) {
    await writeFile(path.join(folder, name), fromSources(code));
    const env = { ...process.env, DATABASE_URL: url };
    await t.notThrowsAsync(promisify(execFile)(process.execPath, [name], { cwd: folder, env }), name);
  }
  t.like((await utils.status()).policies[0], { policy: "fetch_endpoint", staged: runnable.length });
});
