// Uninstalling beside workers and producers, by the command, the utils and plain Graphile Worker afterwards.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { run } from "graphile-worker";
import type pg from "pg";
import {
  ArgumentError,
  addPolicyJob,
  concurrency,
  definePolicy,
  fixed,
  makePolicyUtils,
  RemovalError,
  SchemaVersionError,
  throttle,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
/** A job that has failed waits for longer than any test takes. */
const one = definePolicy("work", {
  partitionBy: "key",
  gates: [concurrency({ max: 1 })],
  backoff: fixed("1 hour"),
});
const shut = definePolicy("work", { partitionBy: "key", gates: [throttle({ rate: 0, per: "1 second" })] });

async function command(url: string, ...args: string[]) {
  const env = { ...process.env, DATABASE_URL: url };
  const answer = await promisify(execFile)(process.execPath, [MAIN, ...args], { env }).catch(
    (error) => error,
  );
  const { stdout, stderr, code = 0 } = answer as { stdout: string; stderr: string; code?: number };
  return { stdout, stderr, code };
}

async function utilsOf(t: ExecutionContext, pool: pg.Pool, policy = shut) {
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  return utils;
}

const isThere = async (pool: pg.Pool) =>
  (await pool.query("select to_regnamespace('dispatch_policy') is not null as there")).rows[0]
    .there as boolean;

test("the command uninstalls, says what it did, and a second time has nothing to do", async (t) => {
  const { url, pool } = await testDatabase(t);
  const utils = await utilsOf(t, pool);
  await utils.addJobs(
    Array.from({ length: 12 }, (_, n) => ({ identifier: "work", payload: { key: `k${n}` } })),
  );
  await pool.query(
    "select graphile_worker.add_job('dispatch_policy_tick', job_key => 'dispatch_policy_tick')",
  );
  t.deepEqual(await command(url, "uninstall", "--yes"), {
    code: 0,
    stderr: "",
    stdout:
      "Unstaged 12 waiting jobs, of which 0 had failed before.\n" +
      "Left out 0 jobs, because a newer job of their key is there.\n" +
      "Dropped 0 jobs, because they had expired.\n" +
      "Unlocked 0 jobs of workers that were killed.\n" +
      "Removed 1 job of the task dispatch_policy_tick.\n" +
      'Dropped the schemas "dispatch_policy" and "dispatch_policy_internal".\n',
  });
  t.is((await pool.query("select from graphile_worker.jobs")).rowCount, 12);
  t.like(await command(url, "uninstall", "--yes"), {
    code: 0,
    stdout: 'There is no schema "dispatch_policy": nothing to do.\n',
  });
  t.false(await isThere(pool));
});

test("the command unstages a policy's jobs once it is off", async (t) => {
  const { url, pool } = await testDatabase(t);
  const utils = await utilsOf(t, pool);
  await utils.addJob("work", { key: "a" } as never);
  const refused = await command(url, "unstage", "--policy", "work");
  t.regex(refused.stderr, /policy 'work' is on, expected it off/);
  await t.throwsAsync(utils.unstage({ policy: "work" }), { instanceOf: ArgumentError, message: /is on/ });
  await utils.disable({ policy: "work" });
  t.deepEqual(await utils.unstage({ policy: "work", dryRun: true }), {
    ...{ matched: 1, changed: 0, refused: 0, expired: 0 },
  });
  t.like(await command(url, "unstage", "--policy", "work"), {
    code: 0,
    stdout: 'Unstaged 1 of 1 waiting job of policy "work".\n',
  });
  t.regex((await command(url, "unstage")).stderr, /unstage: missing --policy/);
  const { rows } = await pool.query(
    "select matched, changed from dispatch_policy.audit where verb = 'unstage'",
  );
  t.deepEqual(rows.at(0), { matched: 1, changed: 1 });
});

test("a live worker with the preset is a refusal that names it and changes nothing; once it has stopped it is none", async (t) => {
  const it = await startWorker(t, { policies: [shut], tasks: { work: () => {} } });
  await it.utils.addJob("work", { key: "a" } as never);
  const registered = await until("its pool is registered", async () => {
    const { rows } = await it.pool.query<{ pool_id: string }>("select pool_id from dispatch_policy.workers");
    return rows[0];
  });
  const { stderr, code } = await command(it.database.url, "uninstall", "--yes");
  t.is(code, 1);
  t.regex(
    stderr.replace(/\s+/g, " "),
    new RegExp(
      `live worker pools .*: 1, .*${registered.pool_id} \\(process ${process.pid} on .*, dead in \\d+ s if it was killed\\).*or force it`,
    ),
  );
  await t.throwsAsync(it.utils.uninstall(), { instanceOf: RemovalError, code: "not_removed" });
  const counted = await command(it.database.url, "uninstall", "--dry-run");
  t.regex(
    counted.stderr.replace(/\s+/g, " "),
    /\(1\): stop them first\. If all were killed, the last counts as dead in \d+ s/,
  );
  t.like((await it.utils.status()).policies[0], { enabled: true, staged: 1 });
  await it.runner.stop();
  t.like(await it.utils.uninstall(), { unstaged: 1 });
  t.false(await isThere(it.pool));
});

test("forced beside a live worker: it goes on, and its jobs and its producers get an error that says why", async (t) => {
  const it = await startWorker(t, { policies: [shut], tasks: { work: () => {}, plain: () => {} } });
  await it.utils.addJobs([1, 2, 3].map((n) => ({ identifier: "work", payload: { key: `k${n}` } })));
  const { code, stdout, stderr } = await command(it.database.url, "uninstall", "--force", "--yes");
  t.is(code, 0, stderr);
  t.regex(stdout, /Dropped the schema/);
  const gone = /database schema "dispatch_policy" has not been set up for this release/;
  // a job that was unstaged may have run before the schema was dropped
  await it.pool.query("select graphile_worker.add_job('work', '{\"key\": \"a\"}')");
  const failed = await it.sees("job:error", 1);
  for (const { error } of failed) t.regex(String(error), gone);
  await t.throwsAsync(it.utils.addJob("work", { key: "a" } as never), {
    instanceOf: SchemaVersionError,
    message: gone,
  });
  await t.throwsAsync(addPolicyJob(it.pool, shut, { key: "a" } as never), { message: gone });
  await t.throwsAsync(it.utils.pause({ policy: "work" }), { message: gone });
  const { id: plain } = await it.row("select id::text from graphile_worker.add_job('plain')");
  await until("a plain job runs", () =>
    it.happened.some(({ event, id }) => event === "job:success" && id === plain),
  );
  t.false(await isThere(it.pool));
});

test("afterwards plain Graphile Worker runs each job once: those in flight, waiting and failed", async (t) => {
  const it = await startWorker(t, {
    policies: [one],
    tasks: {
      work: async () => {
        throw new Error("not yet");
      },
    },
  });
  const keys = Array.from({ length: 5 }, (_, n) => `k${n}`);
  await it.utils.addJobs(keys.map((key) => ({ identifier: "work", payload: { key } })));
  await until("all have failed, and wait", async () => {
    const { n } = await it.row(
      "select count(*)::int as n from dispatch_policy.staged_jobs where job_id is not null",
    );
    return n === 5;
  });
  await it.runner.stop();
  await it.utils.addJobs(
    keys.flatMap((key) => [key, key]).map((key) => ({ identifier: "work", payload: { key } })),
  );
  await it.utils.tick();
  t.true((await it.row("select count(*)::int as n from dispatch_policy.in_flight_jobs")).n > 0);
  const { unstaged, parked } = await it.utils.uninstall();
  t.is(parked, 5);
  t.true(unstaged < 15);
  await it.pool.query(
    "select graphile_worker.reschedule_jobs(array(select id from graphile_worker.jobs), run_at => now())",
  );
  const ran: string[] = [];
  const plain = await run({
    pgPool: it.pool,
    logger: silent,
    noHandleSignals: true,
    taskList: { work: (_, { job }) => void ran.push(job.id) },
  });
  await until(
    "all are done",
    async () => (await it.row("select count(*)::int as n from graphile_worker.jobs")).n === 0,
  );
  await plain.stop();
  t.is(ran.length, 15);
  t.is(new Set(ran).size, 15);
});
