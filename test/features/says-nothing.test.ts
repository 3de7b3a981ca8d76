// Failures that say nothing of the partner open no breaker, lower no adaptive limit, and fail no probe.
import { EventEmitter } from "node:events";
import test from "ava";
import { type JobHelpers, run, type Task, type WorkerPool, WorkerPreset } from "graphile-worker";
import { adaptiveConcurrency, addPolicyJob, definePolicy, dispatchPolicyPreset } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const breaker = { failures: 1, within: "1 minute", cooldown: "10 minutes" } as const;
const touchy = {
  partitionBy: "key",
  gates: [adaptiveConcurrency({ initialMax: 8, targetLagMs: 60_000 })],
  breaker,
};
const LIMIT =
  "select current_max, (select count(*)::int from dispatch_policy.stops) as stops from dispatch_policy.limiters where gate <> 'ahead'";
const UNMOVED = { current_max: 8, stops: 0 };

/** Ends when its worker's shutdown tells it to. */
const heeding: Task = (_, { abortSignal }) =>
  new Promise((_, reject) => {
    abortSignal!.addEventListener("abort", () => reject(abortSignal!.reason));
  });
const heedless: Task = () => new Promise(() => {});

for (const [how, task] of Object.entries({ gracefully: heeding, forcefully: heedless })) {
  for (const retries of ["restage", "bypass"] as const) {
    test(`a worker shuts down ${how}, ${retries}: its jobs run again, each with the attempt it had`, async (t) => {
      const { url, pool } = await testDatabase(t);
      const policy = definePolicy("p", { ...touchy, retries });
      const own = quietPool(url);
      t.teardown(() => own.end());
      let running = 0;
      const events = new EventEmitter();
      const created: WorkerPool[] = [];
      events.on("pool:create", ({ workerPool }) => created.push(workerPool));
      const runner = await run({
        preset: {
          extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy] })],
          worker: { concurrentJobs: 4, gracefulShutdownAbortTimeout: 50, logger: silent },
        },
        ...{ pgPool: own, events, noHandleSignals: true },
        taskList: {
          p: (payload, helpers) => {
            running++;
            return task(payload, helpers);
          },
        },
      });
      runner.promise.catch(() => {});
      for (let n = 0; n < 3; n++) await addPolicyJob(pool, policy, { key: "k" }, { maxAttempts: 1 });
      await until("three run", () => running === 3);
      const stopped = runner.stop().catch(() => {});
      if (how === "forcefully")
        await Promise.resolve(created[0]!.forcefulShutdown("the second SIGTERM")).catch(() => {});
      else await stopped;
      const attempts: number[] = [];
      const next = await startWorker(t, {
        database: { url, pool },
        policies: [policy],
        tasks: { p: async (_, { job }) => void attempts.push(job.attempts) },
        worker: { pollInterval: 100 }, // nobody is notified of a retry past the gates
      });
      await until("they have run again", () => attempts.length === 3);
      t.deepEqual(attempts, [1, 1, 1]);
      t.like(await next.row(LIMIT), UNMOVED);
    });
  }
}

test("a probe that a shutdown has ended is followed by another one", async (t) => {
  const { url, pool } = await testDatabase(t);
  const policy = definePolicy("p", { partitionBy: "key", breaker });
  let running = 0;
  const first = await startWorker(t, {
    database: { url, pool },
    policies: [policy],
    tasks: {
      p: (payload, helpers) => {
        running++;
        return heeding(payload, helpers);
      },
    },
    worker: { gracefulShutdownAbortTimeout: 50 },
  });
  await first.utils.hold({ policy: "p", partition: "k", forMs: 100 });
  await addPolicyJob(pool, policy, { key: "k" });
  await until("the probe runs", () => running === 1);
  await first.stop();
  const next = await startWorker(t, {
    database: { url, pool },
    policies: [policy],
    tasks: { p: async () => {} },
  });
  await next.sees("job:success");
  t.deepEqual(await next.utils.stops(), []);
});

const FAILURES: Record<string, [counts: boolean, task: (helpers: JobHelpers) => Promise<unknown>]> = {
  "an error of its own": [true, () => Promise.reject(new Error("503"))],
  "a PayloadError": [false, ({ addJob }) => addJob("p", { key: 1n } as never)],
  "an error of a verb": [false, ({ dispatchPolicy }) => dispatchPolicy!.hold({ forMs: -1 })],
  "a query whose connection is cut": [
    false,
    async ({ query }) => {
      const cut = await query("select pg_terminate_backend(pg_backend_pid())").catch((error) => error);
      // else Graphile Worker takes the same connection, and cannot record the failure
      await until("another connection works", () => query("select").catch(() => null));
      throw cut;
    },
  ],
  "a statement that is cancelled": [
    false,
    ({ withPgClient }) =>
      withPgClient((client) => client.query("set local statement_timeout = 1; select pg_sleep(60)")),
  ],
  "a partner's error while it has a client": [
    true,
    ({ withPgClient }) => withPgClient(() => Promise.reject(new Error("503"))),
  ],
};

for (const [what, [counts, fail]] of Object.entries(FAILURES)) {
  test(`a run fails with ${what}: the breaker ${counts ? "opens" : "stays closed"}`, async (t) => {
    const { url } = await testDatabase(t);
    const pool = quietPool(url);
    t.teardown(() => pool.end());
    const policy = definePolicy("p", touchy);
    const worker = await startWorker(t, {
      database: { url, pool },
      policies: [policy],
      tasks: { p: (_, helpers) => fail(helpers) as Promise<void> },
    });
    await addPolicyJob(pool, policy, { key: "k" }, { maxAttempts: 1 });
    await worker.sees("job:failed");
    await worker.everythingIsReleased();
    await until("the router has heard of it", async () => {
      const { n } = await worker.row("select count(*)::int as n from dispatch_policy._private_arrivals");
      return n === 0;
    });
    const { current_max, stops } = await worker.row(LIMIT);
    t.is(stops, counts ? 1 : 0);
    t.is(current_max < 8, counts);
  });
}
