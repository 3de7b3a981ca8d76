// Worker processes that die, or are paused for so long that they count as dead.
import test, { type ExecutionContext } from "ava";
import { durationMs } from "../../src/duration.ts";
import { addPolicyJobs } from "../../src/index.ts";
import { SETTINGS, TABLES, work } from "../fixtures/crash/work.ts";
import { type TestDatabase, testDatabase } from "../helpers/database.ts";
import { holdCalls } from "../helpers/held-calls.ts";
import { nameOf, table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startProcess, type WorkerProcess } from "../helpers/worker-process.ts";

/** Far more than the time after which a silent pool is dead and a sweep comes; far less than Graphile Worker's 4 hours. */
const RECOVERED = { withinMs: 60_000 };
const STALE_AFTER_MS = durationMs(SETTINGS.workerStaleAfter);
const SWEEP_MS = durationMs(SETTINGS.sweepInterval);
/** A sweep may be under way when a pool turns stale, and starting the jobs takes a moment. */
const MARGIN_SWEEPS = 2;
/** The same as a time, for a machine on which sweeps come late. */
const MARGIN_MS = 10 * SWEEP_MS;
const MODES = ["plain", "localQueue"] as const;

interface Run {
  readonly job_id: string;
  readonly attempt: number;
  readonly pid: number;
  readonly started_at: Date;
  readonly finished_at: Date | null;
}

/** A database whose jobs run in two processes: one has the first jobs in hand, the other has lived long enough to judge. */
async function world(t: ExecutionContext, mode: string, accounts: readonly string[]) {
  const database = await testDatabase(t);
  await database.pool.query(TABLES);
  const first = await startProcess(t, database, mode);
  await addPolicyJobs(
    database.pool,
    accounts.map((account) => ({ policy: work, payload: { account } })),
  );
  await until("the cap is reached", async () => (await running(database, first)).length >= 2, RECOVERED);
  const second = await startProcess(t, database, mode);
  await until("the second may judge", () => mayJudge(database, second), RECOVERED);
  return { database, first, second };
}

/** Whether a process has lived for so long that it may take others for dead. */
async function mayJudge({ pool }: TestDatabase, { pid }: WorkerProcess): Promise<unknown> {
  return table(pool, "workers").one({ pid, unbroken_since: (its) => `${its} + stale_after < now()` });
}

async function runs({ pool }: TestDatabase): Promise<Run[]> {
  return (await pool.query("select * from runs order by id")).rows;
}

async function running(database: TestDatabase, { pid }: WorkerProcess): Promise<Run[]> {
  return (await runs(database)).filter((run) => run.pid === pid && run.finished_at === null);
}

async function isAlive({ pool }: TestDatabase, { pid }: WorkerProcess): Promise<boolean> {
  const { rows } = await pool.query("select from dispatch_policy.workers where pid = $1 and alive", [pid]);
  return rows.length > 0;
}

function go({ pool }: TestDatabase, pid: number): Promise<unknown> {
  return pool.query("insert into go values ($1)", [pid]);
}

async function counts({ pool }: TestDatabase): Promise<Record<string, number>> {
  const { rows } = await pool.query(`select
    (select count(*)::int from dispatch_policy.staged_jobs) as staged,
    (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
    (select sum(in_flight)::int from dispatch_policy.limiters where kind = 'concurrency') as counted,
    (select count(*)::int from graphile_worker.jobs) as jobs`);
  return rows[0];
}

function everythingIsDone(database: TestDatabase): Promise<unknown> {
  return until(
    "everything is done",
    async () => Object.values(await counts(database)).every((n) => n === 0),
    RECOVERED,
  );
}

/** The most runs at once, those left out that a killed process never ended. */
function mostAtOnce(all: readonly Run[]): number {
  const ended = all.filter((run) => run.finished_at !== null);
  return Math.max(
    ...ended.map(
      ({ started_at: at }) =>
        ended.filter((other) => other.started_at <= at && other.finished_at! > at).length,
    ),
  );
}

function attempts(all: readonly Run[], jobs: readonly string[]): number[] {
  return all.filter(({ job_id }) => jobs.includes(job_id)).map(({ attempt }) => attempt);
}

for (const mode of MODES) {
  test(`scenario 24: a worker killed mid-job, ${mode}: its jobs run again under their slots, nothing else twice`, async (t) => {
    const { database, first, second } = await world(t, mode, ["a", "a", "a", "a", "a"]);
    const hit = (await running(database, first)).map((run) => run.job_id);
    const { rows: locks } = await database.pool.query(`select distinct j.locked_by = w.pool_id as by_pool
      from graphile_worker.jobs j, dispatch_policy.workers w where j.locked_at is not null and w.pid = ${first.pid}`);
    t.deepEqual(locks, [{ by_pool: true }], "Graphile Worker locks jobs by the pool's id");
    first.signal("SIGKILL");
    await first.gone;
    const killedAt = performance.now();
    await until("its pool is stale", async () => !(await isAlive(database, first)), {
      withinMs: STALE_AFTER_MS + MARGIN_MS,
    });
    const sweeps = second.said("swept");
    await until("its jobs run again", async () => (await running(database, second)).length === 2, {
      withinMs: STALE_AFTER_MS + SWEEP_MS + MARGIN_MS - (performance.now() - killedAt),
    });
    const swept = second.said("swept") - sweeps;
    t.log(`after ${Math.round(performance.now() - killedAt)} ms, ${swept} sweeps after its pool was stale`);
    t.true(swept <= 1 + MARGIN_SWEEPS, `${swept} sweeps`);
    t.deepEqual(await counts(database), { staged: 3, in_flight: 2, counted: 2, jobs: 2 });
    await go(database, 0);
    await everythingIsDone(database);
    const all = await runs(database);
    t.deepEqual(attempts(all, hit).sort(), [1, 1, 2, 2]);
    t.is(all.length, 7, "the others ran once");
    t.is(mostAtOnce(all), 2);
    const { rows } = await database.pool.query("select pid from dispatch_policy.workers");
    t.deepEqual(rows, [{ pid: second.pid }]);
  });
}

test("a worker paused for longer than workerStaleAfter: its late end frees nothing while the job runs again", async (t) => {
  const { database, first, second } = await world(t, "plain", ["a", "a", "a", "a"]);
  const hit = (await running(database, first)).map((run) => run.job_id);
  first.signal("SIGSTOP");
  await until("its jobs run again", async () => (await running(database, second)).length === 2, RECOVERED);
  first.signal("SIGCONT");
  await until(
    "it is alive again",
    async () => {
      const text = "select from dispatch_policy.workers where pid = $1 and alive";
      return (await database.pool.query(text, [first.pid])).rows[0];
    },
    RECOVERED,
  );
  await go(database, first.pid);
  await first.says("released");
  await until("its runs ended", async () => (await running(database, first)).length === 0);
  const both = { staged: 2, in_flight: 2, counted: 2 };
  const { jobs: _, ...now } = await counts(database);
  t.deepEqual(now, both, "the slots belong to the second runs");
  const sweeps = () => first.said("swept") + second.said("swept");
  const before = sweeps();
  await until("two sweeps went by", () => sweeps() >= before + 2, RECOVERED);
  const { jobs: __, ...later } = await counts(database);
  t.deepEqual(later, both, "and a sweep leaves them");
  await go(database, 0);
  await everythingIsDone(database);
  const all = await runs(database);
  t.deepEqual(attempts(all, hit).sort(), [1, 1, 2, 2]);
  t.is(all.length, 6, "the others ran once");
  t.true(mostAtOnce(all.filter(({ job_id }) => !hit.includes(job_id))) <= 2);
  t.true(mostAtOnce(all) <= 4, "the cap, and each job's known duplicate");
});

test("what a worker has fetched before it was away for so long runs elsewhere, and not again when it comes back", async (t) => {
  const { database, first, second } = await world(t, "localQueue", ["a", "b", "a", "b"]);
  const ofFirst =
    "select j.id from graphile_worker.jobs j join dispatch_policy.workers w on w.pool_id = j.locked_by";
  await until(
    "three run, and one waits in its local queue",
    async () => {
      const { rows } = await database.pool.query(`${ofFirst} where w.pid = $1`, [first.pid]);
      return rows.length === 4 && (await running(database, first)).length === 3;
    },
    RECOVERED,
  );
  first.signal("SIGSTOP");
  await go(database, second.pid);
  await until("all ran elsewhere", async () => (await runs(database)).length === 3 + 4, RECOVERED);
  await until("and ended", async () => (await running(database, second)).length === 0, RECOVERED);
  first.signal("SIGCONT");
  await go(database, first.pid);
  await first.says("failed");
  await everythingIsDone(database);
  const all = await runs(database);
  t.is(all.filter(({ pid }) => pid === first.pid).length, 3);
  t.is(all.length, 7);
});

test("a worker that is away for so long while it asks whether a job may start: the answer that it finds is too old", async (t) => {
  const database = await testDatabase(t);
  const { pool } = database;
  await pool.query(TABLES);
  const updates = `update on ${nameOf("in_flight_jobs")}`;
  const { isHeld, goOn } = await holdCalls(pool, "_start_attempt", updates);
  const first = await startProcess(t, database, "plain");
  await addPolicyJobs(pool, [{ policy: work, payload: { account: "a", failsFirst: true } }]);
  await until("it runs", async () => (await running(database, first)).length === 1, RECOVERED);
  await go(database, first.pid);
  await first.says("failed"); // so its row says too little: the next attempt asks
  await isHeld();
  const second = await startProcess(t, database, "plain");
  await until("the second may judge", () => mayJudge(database, second), RECOVERED);
  first.signal("SIGSTOP");
  await goOn();
  await until("it runs elsewhere", async () => (await running(database, second)).length === 1, RECOVERED);
  await go(database, second.pid);
  await until("and ended", async () => (await running(database, second)).length === 0, RECOVERED);
  first.signal("SIGCONT");
  await first.says("failed", 2); // it does not run here
  await everythingIsDone(database);
  t.deepEqual(
    (await runs(database)).map(({ pid, attempt }) => [pid === first.pid ? "first" : "second", attempt]),
    [
      ["first", 1],
      ["second", 3],
    ],
  );
});
