// Worker processes that have shares of a gate: they come, and one is killed.
import test, { type ExecutionContext } from "ava";
import { addPolicyJobs } from "../../src/index.ts";
import { shared, TABLES } from "../fixtures/crash/work.ts";
import { type TestDatabase, testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";
import { startProcess, type WorkerProcess } from "../helpers/worker-process.ts";

const SHARE = 2;
const JOBS = 16;
const SOON = { withinMs: 60_000 };

async function runsOf({ pool }: TestDatabase, { pid }: WorkerProcess): Promise<number> {
  const { rows } = await pool.query(
    "select count(*)::int as n from runs where pid = $1 and finished_at is null",
    [pid],
  );
  return rows[0].n;
}

async function eachRunsItsShare(database: TestDatabase, processes: readonly WorkerProcess[]): Promise<void> {
  await until(
    `${processes.length} processes run their shares`,
    async () => {
      const counts = await Promise.all(processes.map((one) => runsOf(database, one)));
      return counts.every((count) => count === SHARE);
    },
    { ...SOON, seen: () => Promise.all(processes.map((one) => runsOf(database, one))) },
  );
}

async function capOf({ pool }: TestDatabase) {
  const { rows } = await pool.query(
    "select max, workers, max_per_worker from dispatch_policy.limiters where gate = 'concurrency'",
  );
  return rows[0];
}

const start = (t: ExecutionContext, database: TestDatabase, mode: string) =>
  startProcess(t, database, mode, "", { SHARES: "1" });

test("each process runs its share, also one that comes, and the jobs of one that is killed run elsewhere", async (t) => {
  const database = await testDatabase(t);
  await database.pool.query(TABLES);
  const first = await start(t, database, "plain");
  const second = await start(t, database, "localQueue");
  await addPolicyJobs(
    database.pool,
    Array.from({ length: JOBS }, () => ({ policy: shared, payload: { account: "a" } })),
  );
  await eachRunsItsShare(database, [first, second]);
  const third = await start(t, database, "plain");
  await eachRunsItsShare(database, [first, second, third]);
  t.deepEqual(await capOf(database), { max: 6, workers: 3, max_per_worker: 2 });
  third.signal("SIGKILL");
  await third.gone;
  await until("its share is gone", async () => (await capOf(database)).workers === 2, SOON);
  await until(
    "its slots came back",
    async () => {
      const { rows } = await database.pool.query(
        "select in_flight from dispatch_policy.limiters where gate = 'concurrency'",
      );
      return rows[0].in_flight <= 2 * SHARE; // the others have requeued its jobs
    },
    SOON,
  );
  await database.pool.query("insert into go values (0)");
  await until(
    "all jobs have run",
    async () => {
      const { rows } = await database.pool.query("select count(finished_at)::int as n from runs");
      return rows[0].n === JOBS;
    },
    SOON,
  );
  const { rows } = await database.pool.query(`select r.pid, max((
      select count(*) from runs x
      where x.pid = r.pid and x.started_at <= r.started_at and (x.finished_at > r.started_at or x.finished_at is null)
    ))::int as most from runs r group by r.pid`);
  t.is(rows.length, 3);
  for (const { pid, most } of rows) t.true(most <= SHARE, `${pid} ran ${most} at once`);
  await until(
    "nothing is left",
    async () => {
      const { rows } = await database.pool.query(`select (select count(*) from graphile_worker.jobs)
        + (select count(*) from dispatch_policy.staged_jobs)
        + (select count(*) from dispatch_policy.in_flight_jobs) as n`);
      return Number(rows[0].n) === 0;
    },
    SOON,
  );
});
