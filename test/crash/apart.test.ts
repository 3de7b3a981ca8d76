// Heartbeat, tick, release and sweep fail on their own.
import test from "ava";
import { run, WorkerPreset } from "graphile-worker";
import type pg from "pg";
import { withDeadline } from "../../src/db/deadline.ts";
import { makeEngine } from "../../src/db/engine.ts";
import { makePatience } from "../../src/db/patience.ts";
import { addPolicyJob, definePolicy, dispatchPolicyPreset } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";

const work = definePolicy("work", {
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});

test("a pool of 2 that is exhausted and a tick that waits for a lock stop no heartbeat", async (t) => {
  const { url, pool } = await testDatabase(t);
  const small = quietPool(url, { max: 2 });
  const runner = await run({
    preset: {
      extends: [
        WorkerPreset,
        dispatchPolicyPreset({
          policies: [work],
          workerHeartbeatInterval: "200 ms",
          workerStaleAfter: "30 seconds",
        }),
      ],
      worker: { logger: silent, pollInterval: 60_000 },
    },
    pgPool: small,
    noHandleSignals: true,
    taskList: { work: async () => {} },
  });
  const worker = () => table(pool, "workers").one();
  const before = await until("it lives", worker);
  await addPolicyJob(pool, work, { account: "a" });
  await until(
    "the job ran",
    async () => (await pool.query("select from dispatch_policy.jobs")).rows.length === 0,
  );
  await until("its slot is back", async () => {
    const { rows } = await pool.query("select from dispatch_policy.in_flight_jobs");
    return rows.length === 0;
  });

  // a pass that gives a lock up keeps away from its limiter: none waits for it again
  await pool.query("alter function dispatch_policy_internal._lock_limiters_soon set lock_timeout = 0");
  const locker = await pool.connect();
  await locker.query("begin");
  await table(locker, "limiters").lock();
  await addPolicyJob(pool, work, { account: "a" });
  await until("a tick waits for the lock", async () => {
    const text =
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%admit%'";
    return (await pool.query(text)).rows.length > 0;
  });
  const last = await small.connect(); // Graphile Worker's listener has the other
  const waiting = small.connect();
  await until("the pool is exhausted", () => small.idleCount === 0 && small.waitingCount > 0);
  for (let beats = 0; beats < 5; beats++) {
    const { heartbeat_at: last } = await worker();
    await until("another heartbeat", async () => (await worker()).heartbeat_at > last);
  }
  t.deepEqual((await worker()).unbroken_since, before.unbroken_since, "none was late");
  last.release();
  (await waiting).release();
  await locker.query("rollback");
  locker.release();
  await until(
    "the job ran",
    async () => (await pool.query("select from dispatch_policy.jobs")).rows.length === 0,
  );
  await runner.stop();
  await small.end();
  await until("its connection is closed", async () => {
    const text = `select from pg_stat_activity where datname = current_database()
      and strpos(query, '_worker_ended') > 0 and pid <> pg_backend_pid()`;
    return (await pool.query(text)).rows.length === 0;
  });
});

test("what takes too long fails, and is cancelled", async (t) => {
  const { pool } = await testDatabase(t);
  const engine = makeEngine("dispatch_policy");
  const withPgClient = async <T>(callback: (client: pg.PoolClient) => Promise<T>): Promise<T> => {
    const client = await pool.connect();
    try {
      return await callback(client);
    } finally {
      client.release();
    }
  };
  const cancel = (pid: number) => engine.cancel(pool, pid);
  const sleeps = 'select pg_sleep(600) /* "dispatch_policy_internal"._ */';
  const hurried = withDeadline(withPgClient as never, makePatience(200, 200), cancel);
  await t.throwsAsync(
    hurried((client) => client.query(sleeps).then(() => {})),
    { message: /within 200 ms/ },
  );
  await until("it was cancelled", async () => {
    const { rows } = await pool.query(
      "select from pg_stat_activity where query like 'select pg_sleep(600)%' and state = 'active' and datname = current_database()",
    );
    return rows.length === 0;
  });
  const patient = withDeadline(withPgClient as never, makePatience(60_000, 60_000), cancel);
  t.is(await patient(async (client) => (await client.query("select 1 as one")).rows[0].one), 1);

  // an exhausted pool: it does not wait for ever, and a client that comes too late goes back unused
  const clients = await Promise.all(Array.from({ length: 10 }, () => pool.connect()));
  let used = false;
  const tooLate = hurried(async () => {
    used = true;
  });
  await t.throwsAsync(tooLate, { message: /within 200 ms/ });
  for (const client of clients) client.release();
  await until("nobody waits", () => pool.waitingCount === 0);
  t.false(used);
});
