// A worker on a server that is another one than before. The promotion is played: the function that names the server says another
// timeline, and rows are taken away or brought back as a standby that lags does. test/failover promotes real ones.
import test from "ava";
import { definePolicy, type PolicyEventMap, policyEvents } from "../../src/index.ts";
import { table, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker, type TestWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "key",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});

/** The next heartbeat is answered by another server. */
async function promote({ pool }: TestWorker): Promise<void> {
  await pool.query(
    "create or replace function dispatch_policy_internal._server_now() returns text language sql as $$ select '7:99' $$",
  );
}

function heard<N extends "dispatchPolicy:promoted" | "dispatchPolicy:gaveUp">(worker: TestWorker, name: N) {
  const all: PolicyEventMap[N][] = [];
  policyEvents(worker.runner.events).on(name, (event) => void all.push(event as never));
  return () => until(name, () => all[0]);
}

const preset = { workerHeartbeatInterval: "200 ms", loopHeartbeat: "200 ms" } as const;

test("a job that runs and that the promotion has lost gets a slot again, and frees it", async (t) => {
  const open = Promise.withResolvers<void>();
  t.teardown(open.resolve);
  const worker = await startWorker(t, { policies: [work], preset, tasks: { work: () => open.promise } });
  const promoted = heard(worker, "dispatchPolicy:promoted");
  await worker.utils.addJob("work", { key: "a" });
  const { id } = (await worker.sees("job:start"))[0]!;
  await workerTable(worker.pool).remove({ id });
  await table(worker.pool, "in_flight_jobs").remove({ job_id: id });
  await table(worker.pool, "limiters").set({ in_flight: 0 });
  await promote(worker);
  t.like(await promoted(), { server: "7:99", runs: 1, occupied: 1 });

  await worker.utils.addJob("work", { key: "a" });
  await until("it waits for the slot", () =>
    worker.row("select from dispatch_policy.partitions where denied_reason = 'concurrency_full'"),
  );
  t.is(worker.happened.length, 1, "nothing has started");
  open.resolve();
  await worker.sees("job:success", 2);
  await worker.everythingIsReleased();
});

test("a job whose end the promotion has lost runs again, and does not keep its slot until then", async (t) => {
  const worker = await startWorker(t, { policies: [work], preset, tasks: { work: () => {} } });
  const gaveUp = heard(worker, "dispatchPolicy:gaveUp");
  await worker.pool.query("create table ends ()");
  const kept = await workerTable(worker.pool).before(
    "delete",
    "insert into ends default values; return null",
  );
  await worker.utils.addJob("work", { key: "a" });
  await until("Graphile Worker has recorded its end", () => worker.row("select from ends"));
  await kept();
  const { ended } = await worker.row("select clock_timestamp() as ended");
  await until("the worker was heard long after that", () =>
    worker.row(
      "select from dispatch_policy.workers where heartbeat_at > $1::timestamptz + interval '1.2 s'",
      [ended],
    ),
  );
  await promote(worker);
  t.deepEqual(await gaveUp(), { unlocked: 1, completed: 0 });
  await worker.sees("job:success", 2);
  await worker.everythingIsReleased();
});

test("after a lost answer nothing is fetched before the server has heard what runs here", async (t) => {
  const worker = await startWorker(t, {
    ...{ policies: [work], preset: NO_HEARTBEAT, tasks: { plain: () => {} } },
    worker: { concurrentJobs: 1 },
  });
  const { pool } = worker;
  const hasFetched = new Promise((resolve) => worker.runner.events.once("job:complete", resolve)).then(
    () => new Promise((resolve) => worker.runner.events.once("worker:getJob:empty", resolve)),
  );
  await pool.query("select graphile_worker.add_job('plain')");
  await hasFetched;
  await pool.query("alter function dispatch_policy_internal._beat rename to _beat_away");
  pool.emit("dispatchPolicy:lostAnswer" as never);
  await pool.query("select graphile_worker.add_job('plain')");
  await until("heartbeats fail", () =>
    worker.log.some(({ message }) => message.startsWith("Heartbeat failed, trying again")),
  );
  const { rows } = await pool.query("select task_identifier, locked_at from graphile_worker.jobs");
  await pool.query("alter function dispatch_policy_internal._beat_away rename to _beat");
  t.deepEqual(rows, [{ task_identifier: "plain", locked_at: null }]);
  await worker.sees("job:success", 2);
});

test("the end of a run whose row may be another job's by now is not recorded: the job runs again", async (t) => {
  const open = Promise.withResolvers<void>();
  t.teardown(open.resolve);
  const worker = await startWorker(t, { policies: [work], preset, tasks: { work: () => open.promise } });
  const promoted = heard(worker, "dispatchPolicy:promoted");
  await worker.utils.addJob("work", { key: "a" }, { jobKey: "once" });
  const { id } = (await worker.sees("job:start"))[0]!;
  await workerTable(worker.pool).set({ locked_by: null, locked_at: null, attempts: 0 }, { id });
  await promote(worker);
  t.like(await promoted(), { runs: 1, occupied: 0 });
  open.resolve();
  const [failed] = await worker.sees("job:error");
  t.regex(failed!.error!, /is not this worker's any more: its end is not recorded/);
  await until("it has run again", async () => {
    await worker.pool.query(`select pg_notify('jobs:insert', '{"r": 1, "count": 1}')`); // its back-off may have passed
    return worker.happened.find(({ event }) => event === "job:success");
  });
  await worker.everythingIsReleased();
});

test("a slot of a job that the pool does not run is left to sweeps some seconds after a lost answer", async (t) => {
  const open = Promise.withResolvers<void>();
  t.teardown(open.resolve);
  const worker = await startWorker(t, { policies: [work], preset, tasks: { work: () => open.promise } });
  const { pool } = worker;
  await worker.utils.addJob("work", { key: "a" });
  const { id } = (await worker.sees("job:start"))[0]!;
  const [{ pool_id }] = await table(pool, "workers").all();
  const other = { job_id: "999999", staged_id: "999999", limiter_ids: [], attempt: 1, pool_id };
  const row = await table(pool, "in_flight_jobs").one({ job_id: id });
  await table(pool, "in_flight_jobs").add({ ...row, ...other, started_at: new Date() });
  pool.emit("dispatchPolicy:lostAnswer" as never);
  await until("it has no pool", async () => {
    const { pool_id: its } = await table(pool, "in_flight_jobs").one({ job_id: other.job_id });
    return its === null;
  });
  t.is((await table(pool, "in_flight_jobs").one({ job_id: id })).pool_id, pool_id, "the other one runs");
  await table(pool, "in_flight_jobs").remove({ job_id: other.job_id });
  open.resolve();
  await worker.sees("job:success");
});
