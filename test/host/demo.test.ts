// The demo, on a small scale: its exit code says whether a limit was broken or a job lost.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { testDatabase } from "../helpers/database.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

test("the demo breaks no limit with the policy, breaks them without, and cleans up", async (t) => {
  const { url, pool } = await testDatabase(t, { migrated: false });

  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["examples/demo/main.ts", "--endpoints", "25", "--loudest", "40"],
    { cwd: ROOT, env: { ...process.env, DATABASE_URL: url }, timeout: 110_000 },
  );

  t.regex(stdout, /With the policy: no violation, no job lost/);
  t.regex(stdout, /^jobs done +(\d+) \/ \1 /m);
  const [, governed, plain] = /^violations: too many at once +(\S+) +(\S+)$/m.exec(stdout) ?? [];
  t.is(governed, "0");
  t.not(plain, "0");
  t.regex(stdout, /What to try next/);
  const { rows } = await pool.query(
    "select datname from pg_database where datname like 'dispatch_policy_demo%'",
  );
  t.deepEqual(rows, []);
});
