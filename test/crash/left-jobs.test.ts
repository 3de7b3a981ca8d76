// Jobs that a pool leaves locked, or failed and not parked: another deals with them, for it knows of every pool that
// fetches, and of every job that occupies a slot.
import test, { type ExecutionContext } from "ava";
import { run, runOnce, type TaskList, WorkerPreset } from "graphile-worker";
import type { Pool } from "pg";
import { concurrency, definePolicy, dispatchPolicyPreset } from "../../src/index.ts";
import { MODES } from "../fixtures/governed/modes.ts";
import { testDatabase } from "../helpers/database.ts";
import { type Ctx, policyOf, scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, table, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});

function options(pgPool: Pool, mode: keyof typeof MODES) {
  const preset: GraphileConfig.Preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [work] })],
    worker: { logger: silent, ...MODES[mode] },
  };
  return { preset, pgPool, noHandleSignals: true };
}

test("a local queue fetches nothing before its pool is known", async (t) => {
  const { pool } = await testDatabase(t);
  await pool.query("select graphile_worker.add_job('free')");
  const holder = await pool.connect();
  await holder.query(`begin; lock table ${nameOf("workers")} in exclusive mode`);
  const free = Promise.withResolvers<void>();
  const taskList: TaskList = { free: async () => free.resolve() };
  const runner = await run({ ...options(pool, "localQueue"), taskList });
  await until("the pool waits to be known", async () => {
    // clones of one template have one number for the table: the database tells whose lock it is
    const { rows } = await pool.query(
      `select from pg_locks where relation = $1::regclass and not granted
         and database = (select oid from pg_database where datname = current_database())`,
      [nameOf("workers")],
    );
    return rows.length > 0;
  });
  const { rows } = await pool.query("select locked_by from graphile_worker.jobs");
  t.deepEqual(rows, [{ locked_by: null }]);
  await holder.query("rollback");
  holder.release();
  await free.promise;
  await runner.stop();
});

for (const mode of ["plain", "localQueue"] as const) {
  test(`a pool that cannot register fetches nothing before it shuts down: ${mode}`, async (t) => {
    const { pool } = await testDatabase(t);
    await pool.query("select graphile_worker.add_job('free')");
    for (const name of ["workers", "policies"])
      await table(pool, name).before("insert or update", "raise 'refused'", "statement");
    const runner = await run({ ...options(pool, mode), taskList: { free: async () => {} } });
    await runner.promise.catch(() => {}); // it shuts itself down
    const { rows } = await pool.query("select locked_by, attempts from graphile_worker.jobs");
    t.deepEqual(rows, [{ locked_by: null, attempts: 0 }]);
  });
}

const knowsOneShots = test.macro({
  title: (_, mode) => `a pool that runs once is known while it runs, ${mode}`,
  async exec(t: ExecutionContext, mode: keyof typeof MODES) {
    const { pool } = await testDatabase(t);
    await pool.query("select dispatch_policy.add_job('work', '{\"account\": \"a\"}')");
    let seen: unknown[] = [];
    const task = async () => {
      ({ rows: seen } = await pool.query(
        "select w.slots from dispatch_policy.workers w join graphile_worker.jobs j on j.locked_by = w.pool_id",
      ));
    };
    await runOnce({ ...options(pool, mode), taskList: { work: task } });
    t.deepEqual(seen, [{ slots: 1 }]);
    await until("it is gone", async () => {
      const { rows } = await pool.query("select from dispatch_policy.workers");
      return rows.length === 0;
    });
  },
});
for (const mode of ["plain", "localQueue"] as const) test(knowsOneShots, mode);

test("a pool that shuts down with a job locked counts as dead, not as gone: the job runs again", async (t) => {
  const worker = await startWorker(t, {
    policies: [work],
    tasks: { work: async () => {} },
    worker: { completeJobBatchDelay: 1 },
  });
  const { pool, row } = worker;
  const noMore = await workerTable(pool).before("delete", "raise 'refused'");
  await worker.utils.addJob("work", { account: "a" });
  await worker.runner.promise; // it shuts itself down
  await worker.everythingIsReleased(1);
  const { locked_by: left } = await row("select locked_by from graphile_worker.jobs");
  t.deepEqual((await row("select pool_id from dispatch_policy.workers")).pool_id, left);

  await noMore();
  const workers = table(pool, "workers");
  await workers.set({ stale_at: () => "clock_timestamp() - interval '1 second'" });
  await pool.query(
    "select dispatch_policy_internal._worker_alive('judge', 1, '{work}', 'host', 1, '1 second', '0')",
  );
  await workers.set({ unbroken_since: (its) => `${its} - interval '1 hour'` }, { pool_id: "judge" });
  t.deepEqual(await row("select * from dispatch_policy_internal._sweep_workers('judge')"), {
    pools: 1,
    jobs: 1,
  });
  const again = await startWorker(t, {
    database: worker.database,
    policies: [work],
    tasks: { work: async () => {} },
  });
  await again.sees("job:success");
  await until(
    "the job is gone",
    async () => (await pool.query("select from graphile_worker.jobs")).rows.length === 0,
  );
  await again.everythingIsReleased();
});

for (const [retries, parks] of [
  ["restage", true],
  ["bypass", false],
] as const) {
  test(`a job that failed as its process died holds no slot while it waits: ${retries}`, async (t) => {
    const it = await scenario(t, policyOf("p", { retries, gates: [concurrency<Ctx>({ max: 1 })] }));
    await it.stage("2@a", {}, { priority: 3, maxAttempts: 5 });
    t.is((await it.tick()).admitted, 1);
    // recorded by Graphile Worker, with a back-off of its own, and nothing after that
    const inAnHour = () => "now() + interval '1 hour'";
    await workerTable(it.pool).set({ attempts: 1, last_error: "broken", run_at: inAnHour });
    const { repaired } = await it.utils.sweep();
    t.is(repaired.jobs, 1);
    t.deepEqual(await it.inFlight(), []);
    t.is((await it.limiter("concurrency")).in_flight, 0);
    const [job] = await it.rows(
      "select run_at = 'infinity' as parked, priority, attempts, last_error from graphile_worker.jobs",
    );
    t.deepEqual(job, { parked: parks, priority: parks ? 32767 : 3, attempts: 1, last_error: "broken" });

    t.is(await it.staged("a"), parks ? 2 : 1);
    t.is((await it.tick(10)).admitted, 1, "the next one goes");
    if (!parks) return;
    await it.finish(1);
    t.is((await it.tick(3500)).admitted, 0, "not before its time");
    t.is((await it.tick(3700)).admitted, 1);
  });
}
