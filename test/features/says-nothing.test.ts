// Failures that say nothing of the partner open no breaker, lower no adaptive limit, and fail no probe.
import { EventEmitter, once } from "node:events";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import test, { type ExecutionContext } from "ava";
import {
  type EnhancedWithPgClient,
  type JobHelpers,
  run,
  type Task,
  type WorkerPool,
  WorkerPreset,
} from "graphile-worker";
import pg from "pg";
import { adaptiveConcurrency, addPolicyJob, definePolicy, dispatchPolicyPreset } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
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

const FAILURES: Record<
  string,
  [counts: boolean, task: (helpers: JobHelpers, pool: pg.Pool) => Promise<unknown>]
> = {
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
  "a statement that is cancelled": [false, ({ withPgClient }) => withPgClient(overTime)],
  "a statement that is cancelled, with retries": [
    false,
    ({ withPgClient }) => (withPgClient as EnhancedWithPgClient).withRetries(overTime),
  ],
  "a statement that is cancelled, told to a callback": [
    false,
    ({ withPgClient }) =>
      withPgClient(
        (client) =>
          new Promise((resolve, reject) =>
            client.query(OVER_TIME, (error) => (error ? reject(error) : resolve(null))),
          ),
      ),
  ],
  "a statement that is cancelled, told to a query of its own class": [
    false,
    ({ withPgClient }) =>
      withPgClient((client) => {
        const query = client.query(new pg.Query(OVER_TIME));
        return once(query, "end"); // rejects on "error"
      }),
  ],
  "an answer that takes too long for pg": [
    false,
    ({ withPgClient }) =>
      withPgClient((client) =>
        client.query({ text: "select pg_sleep(1)", query_timeout: 1 } as pg.QueryConfig),
      ),
  ],
  "a database that refuses connections": [
    false,
    async ({ withPgClient }, pool) => {
      const { connectionString } = pool.options;
      const enough = Promise.withResolvers<void>();
      pool.options.connectionString = `postgres://localhost:${await closedPort()}/none`;
      const all = Array.from({ length: pool.options.max }, () => withPgClient(() => enough.promise));
      const refusal = await Promise.any(all.map((one) => one.then(Promise.reject, (error) => error)));
      pool.options.connectionString = connectionString;
      enough.resolve();
      await Promise.allSettled(all);
      throw refusal;
    },
  ],
  "an error that wraps one of the database": [
    false,
    ({ withPgClient }) =>
      withPgClient((client) =>
        overTime(client).catch((cause) => {
          throw new Error("Failed query", { cause: new Error("in between", { cause }) });
        }),
      ),
  ],
  "several errors of the database": [false, ({ withPgClient }) => Promise.any([withPgClient(overTime)])],
  "several errors, one of them its own": [
    true,
    ({ withPgClient }) => Promise.any([withPgClient(overTime), Promise.reject(new Error("503"))]),
  ],
  "an error that is its own cause": [
    true,
    () => {
      const error = new Error("503");
      return Promise.reject(Object.assign(error, { cause: error }));
    },
  ],
  "a mistake in its own statement": [true, ({ query }) => query("select 1 / 0")],
  "a partner's error while it has a client": [
    true,
    ({ withPgClient }) => withPgClient(() => Promise.reject(new Error("503"))),
  ],
  "a partner that refuses connections while it has a client": [
    true,
    ({ withPgClient }) => withPgClient((client) => client.query("select").then(refused)),
  ],
  "a partner's database that is full while it has a client": [
    true,
    ({ withPgClient }) =>
      withPgClient(() => Promise.reject(Object.assign(new Error("too many clients"), { code: "53300" }))),
  ],
  "a partner's error that is no Error, with retries": [
    true,
    ({ withPgClient }) =>
      (withPgClient as EnhancedWithPgClient).withRetries(() => Promise.reject({ message: "503" })),
  ],
};

const OVER_TIME = "set local statement_timeout = 1; select pg_sleep(60)";
const overTime = (client: { query(text: string): Promise<unknown> }) => client.query(OVER_TIME);

/** A partner that is down. */
async function refused(): Promise<void> {
  await once(http.get({ host: "127.0.0.1", port: await closedPort() }), "response");
}

/** Nobody listens there. */
async function closedPort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

for (const [what, [counts, fail]] of Object.entries(FAILURES)) {
  test(`a run fails with ${what}: the breaker ${counts ? "opens" : "stays closed"}`, async (t) => {
    await runsOnce(t, counts, { key: "k" }, (_, helpers, pool) => fail(helpers, pool));
  });
}

for (const counts of [false, true]) {
  test(`each part of a batch fails, ${counts ? "one with an error of its own" : "all by the database"}: the breaker ${counts ? "opens" : "stays closed"}`, async (t) => {
    await runsOnce(t, counts, [{ key: "k" }, { key: "k" }], async (payload, { withPgClient }) =>
      (payload as unknown[]).map((_, n) =>
        counts && n > 0 ? Promise.reject(new Error("503")) : withPgClient(overTime),
      ),
    );
  });
}

type RunOfP = (payload: unknown, helpers: JobHelpers, pool: pg.Pool) => Promise<unknown>;

/** Runs a job that fails, and looks whether that counts. */
async function runsOnce(t: ExecutionContext, counts: boolean, payload: object, task: RunOfP): Promise<void> {
  const { url } = await testDatabase(t);
  const pool = quietPool(url);
  t.teardown(() => pool.end());
  const policy = definePolicy("p", { ...touchy, partitionBy: Array.isArray(payload) ? "0.key" : "key" });
  const worker = await startWorker(t, {
    database: { url, pool },
    policies: [policy],
    tasks: { p: (payload, helpers) => task(payload, helpers, pool) as Promise<void> },
  });
  await addPolicyJob(pool, policy, payload as never, { maxAttempts: 1 });
  await worker.sees("job:failed");
  await worker.everythingIsReleased();
  await until("the router has heard of it", async () => (await table(pool, "arrivals").count()) === 0);
  const { current_max, stops } = await worker.row(LIMIT);
  t.is(stops, counts ? 1 : 0);
  t.is(current_max < 8, counts);
}

test("a task's client is as Graphile Worker's: the same for each connection, and its query may be replaced", async (t) => {
  const policy = definePolicy("p", { partitionBy: "key" });
  const clients = new Map<unknown, Set<unknown>>();
  let replaced = 0;
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      p: async (_, { withPgClient }) => {
        for (
          let n = 0;
          n < 20;
          n++ // a pool has 10, so that some come again
        )
          await withPgClient(async (client) => {
            const { rows } = await client.query({ text: "select pg_backend_pid() as pid", values: [] });
            const known = clients.get(rows[0].pid) ?? new Set();
            clients.set(rows[0].pid, known.add(client));
            t.true(client instanceof pg.Client);
            const { query } = client;
            client.query = (...args: unknown[]) => {
              replaced++;
              return Reflect.apply(query, client, args);
            };
            await client.query("select");
            Reflect.deleteProperty(client, "query");
          });
      },
    },
  });
  await addPolicyJob(worker.pool, policy, { key: "k" });
  await worker.sees("job:success");
  t.is(replaced, 20);
  t.true(clients.size < 20 && [...clients.values()].every(({ size }) => size === 1));
});
