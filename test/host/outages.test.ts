// What goes wrong in the database for a while: it is tried again, not too often, and nothing is lost.
import test from "ava";
import { run, WorkerPreset } from "graphile-worker";
import type pg from "pg";
import { addPolicyJob, definePolicy, dispatchPolicyPreset, runTickLoop } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { liveLeases } from "../helpers/leases.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});
const account = { account: "a" };

const THEIRS = "application_name = 'cut' and datname = current_database()";

/** They are gone when it resolves: one that lived on for a moment could take the next job with it. */
function cutAll(pool: pg.Pool): Promise<unknown> {
  return pool.query(`select pg_terminate_backend(pid, 5000) from pg_stat_activity where ${THEIRS}`);
}

function said({ log }: TestWorker, text: string, ...levels: readonly string[]): number {
  const is = (level: string) => levels.length === 0 || levels.includes(level);
  return log.filter(({ level, message }) => is(level) && message.includes(text)).length;
}

test("a tick that fails every time does not spin, however often it is nudged, and recovers", async (t) => {
  const worker = await startWorker(t, { policies: [work], tasks: { work: async () => {} } });
  await until("it leads", () => worker.log.some(({ message }) => message.includes("this worker leads")));
  await worker.pool.query("alter function dispatch_policy_internal._admit rename to _admit_away");
  const before = performance.now();
  for (let n = 0; n < 50; n++) await worker.utils.addJob(work, account);
  await until("it failed twice", () => said(worker, "Tick of work failed") >= 2);
  const seconds = (performance.now() - before) / 1000;
  t.true(said(worker, "Tick of work failed") <= 4 + seconds, worker.log.length.toString());
  t.is(said(worker, "Tick of work failed", "warning"), 1, "it warns once");
  await worker.pool.query("alter function dispatch_policy_internal._admit_away rename to _admit");
  await worker.sees("job:success", 50);
  t.is(said(worker, "Ticks of work work again, after", "info"), 1);
});

test("a release that fails is tried again, and frees the slot", async (t) => {
  const worker = await startWorker(t, { policies: [work], tasks: { work: async () => {} } });
  await worker.pool.query("alter function dispatch_policy_internal._release rename to _release_away");
  await worker.utils.addJob(work, account);
  await worker.utils.addJob(work, account);
  await worker.sees("job:success");
  await until("it failed", () => said(worker, "Could not release") >= 2);
  t.is(said(worker, "Could not release", "warning"), 1, "it warns once");
  await worker.pool.query("alter function dispatch_policy_internal._release_away rename to _release");
  await worker.sees("job:success", 2);
  await worker.everythingIsReleased();
  t.pass();
});

test("every connection is cut: the worker goes on", async (t) => {
  const { url, pool } = await testDatabase(t);
  const cut = quietPool(url, { application_name: "cut" });
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [work] })],
    worker: { logger: silent, pollInterval: 500 },
  };
  const runner = await run({
    preset,
    pgPool: cut,
    noHandleSignals: true,
    taskList: { work: async () => {} },
  });
  t.teardown(async () => {
    await runner.stop();
    await cut.end();
  });
  await until("it leads", async () => (await liveLeases(pool))[0]);
  for (let round = 0; round < 4; round++) {
    // first once without: a worker whose very first query fails, which asks for its tasks' ids, never finds a job
    if (round > 0) await cutAll(pool);
    await addPolicyJob(pool, work, account);
    await until(
      "the job ran",
      async () => (await pool.query("select from dispatch_policy.jobs")).rows.length === 0,
    );
  }
  t.pass();
});

test("runTickLoop goes on, and listens again", async (t) => {
  const { url, pool } = await testDatabase(t);
  const cut = quietPool(url, { application_name: "cut" });
  const controller = new AbortController();
  const loop = runTickLoop({ pgPool: cut, policies: [work], logger: silent, signal: controller.signal });
  const listens = () =>
    until("it listens", async () => {
      const text = `select from pg_stat_activity where ${THEIRS} and query = 'listen dispatch_policy'`;
      return (await pool.query(text)).rows.length > 0;
    });
  await listens();
  await cutAll(pool);
  await listens();
  await addPolicyJob(pool, work, account);
  await until(
    "the job is admitted",
    async () => (await pool.query("select from graphile_worker.jobs")).rows[0],
  );
  controller.abort();
  await loop;
  await cut.end();
  t.pass();
});

test("runTickLoop makes do with a pool of one connection, and is told at once", async (t) => {
  const { url, pool } = await testDatabase(t);
  const controller = new AbortController();
  t.teardown(() => controller.abort());
  const loop = runTickLoop({
    connectionString: url,
    maxPoolSize: 1,
    policies: [work],
    logger: silent,
    signal: controller.signal,
  });
  await until("it listens", async () => {
    const text = `select from pg_stat_activity where datname = current_database() and query = 'listen dispatch_policy'`;
    return (await pool.query(text)).rows.length > 0;
  });
  const jobs = async () => (await pool.query("select from graphile_worker.jobs")).rows.length;
  for (const count of [1, 2]) {
    await addPolicyJob(pool, work, { account: `a${count}` });
    // sooner than its heartbeat
    await until("the job is admitted", async () => (await jobs()) === count, { withinMs: 10_000 });
  }
  controller.abort();
  await loop;
  t.pass();
});
