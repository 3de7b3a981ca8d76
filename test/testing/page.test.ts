// The code of docs/testing.md, put together and run as its reader would.
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { testDatabase } from "../helpers/database.ts";
import { blocksOf, readersProject, writeFiles } from "../helpers/readers-project.ts";

const USES_DUMP = `
import { makePolicyUtils } from "graphile-worker-dispatch-policy";
import { pglitePool } from "graphile-worker-dispatch-policy/testing";
import { db } from "./from-dump.ts";
import { fetchEndpoint } from "./policies.ts";
const pool = pglitePool(db);
const utils = await makePolicyUtils({ pgPool: pool, policies: [fetchEndpoint] });
console.log((await utils.status()).policies.map(({ policy }) => policy));
await utils.release();
await pool.end();
await db.close();
`;

test("the tests of docs/testing.md pass, and its dump starts a PGlite", async (t) => {
  t.timeout(5 * 60_000); // PGlite starts three times, which takes seconds of processor time
  const { url } = await testDatabase(t, { migrated: false });
  const project = await readersProject(t);
  const files = await writeFiles(project, await blocksOf("docs/testing.md"));
  const run = async (env: NodeJS.ProcessEnv, ...args: string[]) => {
    const done = promisify(execFile)(process.execPath, args, {
      cwd: project,
      env: { ...process.env, ...env },
    });
    const { stdout, stderr } = await done.catch((error: { stdout: string; stderr: string }) => error);
    return stdout + stderr;
  };

  const here = await run({ DATABASE_URL: "" }, "--test", "policies.test.ts");
  t.regex(here, /^ℹ pass 5$/m, here);
  t.regex(here, /^ℹ fail 0$/m, here);
  const there = await run({ DATABASE_URL: url }, "--test", "on-a-server.test.ts");
  t.regex(there, /^ℹ pass 1$/m, there);
  t.is(await run({}, "make-dump.ts"), "");
  await writeFile(path.join(project, "uses-dump.ts"), USES_DUMP);
  t.regex(await run({}, "uses-dump.ts"), /^\[ 'fetch_endpoint' \]$/m);
  t.deepEqual(files.toSorted(), [
    ...["from-dump.ts", "make-dump.ts", "on-a-server.test.ts", "policies.test.ts", "policies.ts"],
  ]);
});
