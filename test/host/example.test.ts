// The example project, run with its one command; and the README's blocks, put together and run as its reader would.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { testDatabase } from "../helpers/database.ts";
import { type Block, blocksOf, readersProject, typeErrors, writeFiles } from "../helpers/readers-project.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

test("examples/webhooks stages, admits, holds after a 429, and delivers every event", async (t) => {
  const { url, pool } = await testDatabase(t);

  const { stdout } = await promisify(execFile)(process.execPath, ["examples/webhooks/main.ts"], {
    cwd: ROOT,
    env: { ...process.env, DATABASE_URL: url },
    timeout: 60_000,
  });

  t.regex(
    stdout,
    /^staged before any worker runs: 31$/m,
    "30 releases and a sign-up; order_paid has no policy",
  );
  t.regex(stdout, /^received 32 events$/m);
  // The second one is staged by a task. When that task runs depends on the machine.
  const place = Number(/came as number (\d+) and \d+$/m.exec(stdout)?.[1]);
  t.true(place < 20, `the quiet customer does not wait for the loud one's 30: ${stdout}`);
  const holds = await pool.query("select reason from dispatch_policy.audit where verb = 'hold'");
  t.deepEqual(holds.rows, [{ reason: "429 from the endpoint" }]);
  const left = await pool.query(`select
    (select count(*)::int from dispatch_policy.staged_jobs) as staged,
    (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
    (select count(*)::int from graphile_worker.jobs where task_identifier <> 'dispatch_policy_tick') as jobs`);
  t.deepEqual(left.rows, [{ staged: 0, in_flight: 0, jobs: 0 }]);
});

test("the tests of examples/webhooks pass without a server", async (t) => {
  t.timeout(3 * 60_000); // PGlite's start takes seconds of processor time
  const { DATABASE_URL: _, ...env } = process.env;
  const file = "examples/webhooks/policies.test.ts";
  const tested = promisify(execFile)(process.execPath, ["--test", file], { cwd: ROOT, env });
  const { stdout } = await tested.catch((error: { stdout: string }) => error);
  t.regex(stdout, /^ℹ pass 3$/m, stdout);
  t.regex(stdout, /^ℹ fail 0$/m, stdout);
});

test("the README's five-minute start type-checks and runs, and so do its other blocks", async (t) => {
  t.timeout(3 * 60_000);
  const { url, pool } = await testDatabase(t, { migrated: false });
  const project = await readersProject(t);
  const blocks = [...(await blocksOf("README.md")), ...(await blocksOf("docs/operating.md"))];
  await writeFiles(project, blocks);
  const node = (...args: string[]) =>
    promisify(execFile)(process.execPath, args, { cwd: project, env: { ...process.env, DATABASE_URL: url } });
  const work = () => node("node_modules/graphile-worker/dist/cli.js", "--once");

  t.deepEqual(await typeErrors(project), []);
  await work();
  const added = await node("add.ts");
  t.regex(added.stdout, /^10{14}\d ep1$/m);
  const [addJob = "", ...others] = blocks.filter(({ language }) => language === "sql").flatMap(statementsOf);
  await pool.query(addJob);
  const worked = await work();
  t.is(worked.stdout.match(/asking ep1, attempt 1/g)?.length, 2, worked.stdout);
  for (const statement of others) await t.notThrowsAsync(pool.query(statement), statement);
  const operated = await node("operating.ts");
  t.regex(operated.stdout, /orphaned/);
  t.regex((await node("telling.ts")).stdout, /^ana paused fetch_endpoint ep1: incident 12$/m);
  await t.notThrowsAsync(node("operate.ts"));
});

function statementsOf({ text }: Block): string[] {
  return text.split(/;.*$/m).filter((statement) => statement.trim() !== "");
}
