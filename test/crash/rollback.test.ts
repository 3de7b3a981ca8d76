// A deployment back and forth, with a process for each version. The limits of the version in force are strict.
import test, { type ExecutionContext } from "ava";
import { addPolicyJobs } from "../../src/index.ts";
import { released, TABLES } from "../fixtures/crash/work.ts";
import { type TestDatabase, testDatabase } from "../helpers/database.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startProcess, type WorkerProcess } from "../helpers/worker-process.ts";

async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  await database.pool.query(TABLES);
  return { database, pool: database.pool };
}

type World = { database: TestDatabase; pool: TestDatabase["pool"] };

const start = (t: ExecutionContext, { database }: World, version: number) =>
  startProcess(t, database, "plain", "", { RELEASE: `${version}` });

/** Jobs of one account, added by a process that is no worker. */
const add = ({ pool }: World, version: number, count: number) =>
  addPolicyJobs(pool, Array(count).fill({ policy: released(version), payload: { account: "a" } }));

async function inForce({ pool }: World): Promise<number> {
  return (await pool.query("select version from dispatch_policy.policies")).rows[0].version;
}

/** Resolves once every partition has the limits of this version. Returns the database's time then. */
async function goesBy({ pool }: World, version: number): Promise<Date> {
  const max = version === 1 ? 1 : 3;
  await until(`version ${version} limits all partitions`, async () => {
    const { rows } = await pool.query(
      `select p.version, p.resolving, l.max
       from dispatch_policy.policies p
       left join dispatch_policy.limiters l on l.policy = p.policy and l.gate = 'concurrency'`,
    );
    const [{ resolving, ...its }] = rows;
    const gates = (await table(pool, "partitions").one())?.limiter_ids.length;
    return its.version === version && !resolving && its.max === max && gates === (version === 1 ? 3 : 2);
  });
  return (await pool.query("select clock_timestamp() as now")).rows[0].now;
}

const running = ({ pool }: World, count: number) =>
  until(`${count} run`, async () => {
    const { rows } = await pool.query("select count(*)::int as runs from runs where finished_at is null");
    return rows[0].runs === count;
  });

/** How many ran at once, at most, when a run began within this time. */
async function mostAtOnce({ pool }: World, from: Date, to: Date | null = null): Promise<number> {
  const { rows } = await pool.query(
    `select coalesce(max((select count(*)::int from runs o
       where o.started_at <= r.started_at and coalesce(o.finished_at, 'infinity') > r.started_at)), 0) as most
     from runs r where r.started_at > $1 and r.started_at < coalesce($2::timestamptz, 'infinity')`,
    [from, to],
  );
  return rows[0].most;
}

/** The runs of this process may end. */
const mayEnd = ({ pool }: World, { pid }: WorkerProcess) => pool.query("insert into go values ($1)", [pid]);

test("version 1, 2 and back, as the worker of version 2 shuts down: the limits of 1 are back, and strict", async (t) => {
  const it = await world(t);
  const first = await start(t, it, 1);
  await add(it, 1, 20);
  await running(it, 1);
  const began = await goesBy(it, 1);
  const second = await start(t, it, 2);
  await goesBy(it, 2);
  await running(it, 3);
  await mayEnd(it, first);
  await mayEnd(it, second);
  second.signal("SIGTERM");
  await second.gone;
  t.is(await inForce(it), 1, "at once");
  const back = await goesBy(it, 1);
  await add(it, 2, 5); // by a process that is not rolled back yet
  await until("all ran", async () => {
    const { rows } = await it.pool.query(
      "select count(*)::int as runs from runs where finished_at is not null",
    );
    return rows[0].runs >= 25;
  });
  t.true((await mostAtOnce(it, began, back)) <= 3);
  t.is(await mostAtOnce(it, back), 1);
});

test("version 1, 2 and back, as the worker of version 2 is killed: version 2 stays until it counts as dead", async (t) => {
  const it = await world(t);
  const first = await start(t, it, 1);
  await add(it, 1, 20);
  await running(it, 1);
  const second = await start(t, it, 2);
  await goesBy(it, 2);
  await running(it, 3);
  second.signal("SIGKILL");
  await second.gone;
  t.is(await inForce(it), 2, "nobody knows yet");
  const back = await goesBy(it, 1);
  const workers = table(it.pool, "workers");
  t.is(await workers.count({ pid: second.pid, stale_at: (its) => `${its} < now()` }), 1);
  t.is(await workers.count({ pid: second.pid }), 1);
  // its runs have no end
  await it.pool.query("update runs set finished_at = clock_timestamp() where pid = $1", [second.pid]);
  await mayEnd(it, first);
  await until("all ran", async () => {
    const left = await it.pool.query(
      "select (select count(*) from graphile_worker.jobs) + (select count(*) from dispatch_policy.staged_jobs) as jobs",
    );
    return Number(left.rows[0].jobs) === 0;
  });
  t.is(await mostAtOnce(it, back), 1);
});
