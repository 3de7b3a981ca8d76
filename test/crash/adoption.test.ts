// Processes that are killed while they adopt: each job is in one place, and runs once.
import { spawn } from "node:child_process";
import { once } from "node:events";
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { makePolicyUtils } from "../../src/index.ts";
import { TABLES, work } from "../fixtures/crash/work.ts";
import { type TestDatabase, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { table, workerNameOf, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";
import { startProcess } from "../helpers/worker-process.ts";

const MAIN = new URL("../../src/cli/main.ts", import.meta.url).pathname;

/** Each is 0 once everything is done. */
const LEFT = `select
  (select count(*)::int from dispatch_policy.staged_jobs) as staged,
  (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
  (select sum(in_flight)::int from dispatch_policy.limiters) as counted,
  (select count(*)::int from graphile_worker.jobs) as jobs`;

/** A database whose task has so many waiting jobs, some with a key and some with a failed attempt. */
async function backlog(
  t: { teardown(drop: () => Promise<void>): void },
  jobs: number,
): Promise<TestDatabase> {
  const database = await testDatabase(t);
  const { pool } = database;
  await pool.query(TABLES);
  await pool.query("insert into go values (0)");
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  await utils.release();
  await pool.query(
    `select count(*) from graphile_worker.add_jobs(array(
       select row('work', json_build_object('account', n % 20, 'n', n), null, null, null,
         case when n % 10 = 0 then 'key' || n end, null, null)::graphile_worker.job_spec
       from generate_series(1, $1) n))`,
    [jobs],
  );
  const some = { id: (its: string) => `${its} % 500 = 0` };
  await workerTable(pool).set({ attempts: 1, last_error: "oops" }, some);
  return database;
}

/** The numbers of the jobs, wherever they wait. A parked one is Graphile Worker's. */
async function waiting(pool: pg.Pool): Promise<number[]> {
  const { rows } = await pool.query(
    `select (payload ->> 'n')::int as n from dispatch_policy.staged_jobs where job_id is null
     union all select (payload ->> 'n')::int from ${workerNameOf()} order by n`,
  );
  return rows.map(({ n }) => n);
}

test("the command, killed with SIGKILL in a step: each job is in one place, the next call goes on, and each runs once", async (t) => {
  // the step of a killed command may still commit, so two rounds move up to 8,000
  const jobs = 9000;
  const database = await backlog(t, jobs);
  const { url, pool } = database;
  const all = Array.from({ length: jobs }, (_, n) => n + 1);
  // each step lasts long enough to be killed in it, also where this test looks seldom because the machine is busy
  const noMore = await table(pool, "staged_jobs").after("insert", "perform pg_sleep(0.25)", "statement");
  const steps = async () =>
    (await pool.query("select count(*)::int as n from dispatch_policy.audit where verb = 'adopt'")).rows[0].n;
  const inStep = async () => {
    const { rows } = await pool.query(
      `select from pg_stat_activity
       where datname = current_database() and state = 'active' and query like '%"adopt"(%' and wait_event = 'PgSleep'`,
    );
    return rows.length > 0;
  };
  for (let round = 0; round < 2; round++) {
    const before = await steps();
    const child = spawn(process.execPath, [MAIN, "adopt", "--task", "work", "--connection", url], {
      stdio: "ignore",
    });
    const gone = once(child, "exit");
    await until("it is in a step", async () => (await inStep()) && (await steps()) > before);
    child.kill("SIGKILL");
    const [, signal] = await gone;
    t.is(signal, "SIGKILL");
    await until("its session has ended", async () => !(await inStep()));
    t.deepEqual(await waiting(pool), all);
  }
  await noMore();
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  await utils.adopt({ task: "work" });
  t.deepEqual(await waiting(pool), all);
  const left = await pool.query("select from graphile_worker.jobs where run_at < 'infinity'");
  t.is(left.rows.length, 0);
  t.deepEqual(await runAll(t, database), all);
});

/** The numbers of the jobs that a worker ran until nothing was left, in order, once for each run. */
async function runAll(t: ExecutionContext, database: TestDatabase): Promise<number[]> {
  const ran: number[] = [];
  const { row } = await startWorker(t, {
    database,
    policies: [work],
    tasks: { work: async (payload) => void ran.push((payload as { n: number }).n) },
    worker: { concurrentJobs: 24, localQueue: { size: 100 }, completeJobBatchDelay: 0 },
  });
  await until("nothing is left", async () => Object.values(await row(LEFT)).every((n) => n === 0), {
    withinMs: 90_000,
    everyMs: 100,
    seen: () => row(LEFT),
  });
  return ran.sort((a, b) => a - b);
}

test("a worker that is killed after a step of its own adoption: another one runs each job once", async (t) => {
  const jobs = 300;
  const database = await backlog(t, jobs);
  const { pool } = database;
  const first = await startProcess(t, database, "plain", "._adopt_unless_busy(");
  await first.gone;
  await startProcess(t, database, "plain");
  const seen = async () => (await pool.query(LEFT)).rows[0];
  await until("everything is done", async () => Object.values(await seen()).every((n) => n === 0), {
    withinMs: 90_000,
    seen,
  });
  const { rows } = await pool.query(
    `select job_id, count(*)::int as runs, bool_or(pid = $1) as hit from runs group by job_id`,
    [first.pid],
  );
  t.is(rows.length, jobs);
  for (const row of rows) t.true(row.runs === 1 || (row.hit && row.runs === 2), JSON.stringify(row));
});
