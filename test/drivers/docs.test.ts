// The example of docs/adding-jobs.md, as a user would run it. Those of other libraries are in examples/transactions.
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { makePolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { examplesOf, fromSources, project } from "../helpers/examples.ts";
import { silent } from "../helpers/silent.ts";

test("the example of a transaction adds a job", async (t) => {
  const { url, pool } = await testDatabase(t);
  const folder = await project(t);
  const { fetchEndpoint } = await import(path.join(folder, "policies.ts"));
  const utils = await makePolicyUtils({ pgPool: pool, policies: [fetchEndpoint], logger: silent });
  t.teardown(async () => utils.release());
  const name = "add-pg.ts";
  const code = (await examplesOf("docs/adding-jobs.md")).get(name)!;
  await writeFile(path.join(folder, name), fromSources(code));
  const env = { ...process.env, DATABASE_URL: url };
  await t.notThrowsAsync(promisify(execFile)(process.execPath, [name], { cwd: folder, env }));
  t.like((await utils.status()).policies[0], { policy: "fetch_endpoint", staged: 1 });
});
