// A worker's start and stop, who leads the ticks, and what operators do from elsewhere.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { run, runOnce, runTaskList, WorkerPreset } from "graphile-worker";
import pg from "pg";
import {
  addPolicyJob,
  addPolicyJobs,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  policyEvents,
} from "../../src/index.ts";
import { RUNS, work } from "../fixtures/governed/work.ts";
import { quietPool, type TestDatabase, testDatabase } from "../helpers/database.ts";
import { liveLeases } from "../helpers/leases.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { type Place, startWorker, type TestWorker } from "../helpers/worker.ts";

const WORKER = fileURLToPath(new URL("../fixtures/governed/worker.ts", import.meta.url));
/** Under a leader's beat of 3.5 s: what comes sooner was told, not found out. */
const TOLD_MS = 3400;

const one = definePolicy("work", {
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});
const sharded = definePolicy("work", {
  context: (payload) => payload as { shard: string },
  partitionBy: (ctx) => ctx.shard,
  shardBy: (ctx) => ctx.shard,
});
const account = { account: "a" };

/** A task that runs until it is told to end. */
function latch() {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { task: () => promise, open: resolve };
}

const leases = ({ pool }: Place) => liveLeases(pool);

function leads(worker: TestWorker): Promise<unknown> {
  return until("it leads", async () => {
    const { rows } = await worker.pool.query("select from dispatch_policy.workers");
    const line = worker.log.find(({ message }) => message.includes("this worker leads"));
    return rows.length > 0 && line !== undefined;
  });
}

test("a graceful stop waits for running jobs, releases them, and leaves no lease behind", async (t) => {
  const { task, open } = latch();
  const worker = await startWorker(t, { policies: [one], tasks: { work: task } });
  await worker.utils.addJob(one, account);
  await worker.sees("job:start");
  const stopped = worker.stop();
  await until("it stepped down", async () => (await leases(worker.database)).length === 0);
  open();
  await stopped;
  await worker.everythingIsReleased();
  const { n } = await worker.row("select count(*)::int as n from dispatch_policy.workers");
  t.is(n, 0);
  t.is(worker.happened.at(-1)?.event, "job:success");
});

test("of loops that lead some shards each, all agree whose is the first one, which sweeps", async (t) => {
  const database = await testDatabase(t);
  const policies = ["later", "earlier"].map((name) => definePolicy(name, { partitionBy: "account" }));
  const utils = await makePolicyUtils({ pgPool: database.pool, policies, logger: silent });
  t.teardown(() => utils.release());
  const bid = async (holder: string, names: string[]) => {
    const text = "select policy, leads from dispatch_policy_internal._lease($1, $2, null, '1 minute', true)";
    return (await database.pool.query(text, [holder, names])).rows;
  };
  t.deepEqual(await bid("one", ["later"]), [{ policy: "later", leads: true }]);
  t.deepEqual(await bid("other", ["later", "earlier"]), [
    { policy: "earlier", leads: true },
    { policy: "later", leads: false },
  ]);
});

test("heartbeats go on while the last jobs of a pool that stops run, and it counts no slots", async (t) => {
  const { task, open } = latch();
  const preset = { workerHeartbeatInterval: "100 ms" } as const;
  const worker = await startWorker(t, { policies: [one], tasks: { work: task }, preset });
  await worker.utils.addJob(one, account);
  await worker.sees("job:start");
  const stopped = worker.stop();
  await until("it stepped down", async () => (await leases(worker.database)).length === 0);
  const { at } = await worker.row("select clock_timestamp() as at");
  await until("a heartbeat later", async () => {
    const row = await worker.row("select heartbeat_at, slots from dispatch_policy.workers");
    return row.heartbeat_at > at && row.slots === 0;
  });
  open();
  await stopped;
  t.is((await worker.row("select count(*)::int as n from dispatch_policy.workers")).n, 0);
});

test("when the leader stops, another process leads at once", async (t) => {
  const database = await testDatabase(t);
  const first = await startWorker(t, { policies: [one], database, tasks: { work: async () => {} } });
  await leads(first);
  const second = await startWorker(t, { policies: [one], database, tasks: { work: async () => {} } });
  const [lease] = await leases(database);
  await until("the second stands by", () => second.log.some(({ message }) => message.includes("stands by")));
  const stopped = first.stop();
  await until(
    "the first has stepped down",
    async () => (await leases(database))[0]?.holder !== lease?.holder,
  );
  const steppedDown = performance.now();
  await until("the second leads", async () => (await leases(database)).length > 0);
  const took = performance.now() - steppedDown;
  await stopped;
  t.true(took < TOLD_MS, `${took} ms`);
  await second.utils.addJob(one, account);
  await second.sees("job:success");
});

test("a forceful stop fails the jobs that still run, and releases them", async (t) => {
  const { pool } = await testDatabase(t);
  const { task } = latch(); // never opens
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [one] })],
    worker: { logger: silent, pollInterval: 60_000 },
  };
  const workerPool = runTaskList({ preset, noHandleSignals: true }, { work: task }, pool);
  const ended = workerPool.promise.catch(() => {}); // says that it was not graceful
  await until(
    "it is declared",
    async () => (await pool.query("select from dispatch_policy.policies")).rows[0],
  );
  await addPolicyJob(pool, one, account);
  const job = async () => (await pool.query("select * from graphile_worker.jobs")).rows[0];
  await until("it runs", async () => (await job())?.locked_at);
  await workerPool.forcefulShutdown("the test says so");
  t.like(await job(), { locked_at: null, attempts: 0, last_error: "the test says so", priority: 32767 });
  const { rows } =
    await pool.query(`select (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
    (select sum(in_flight)::int from dispatch_policy.limiters) as counted,
    (select count(*)::int from dispatch_policy.staged_jobs) as staged`);
  t.deepEqual(rows[0], { in_flight: 0, counted: 0, staged: 1 });
  await ended;
});

const TAKEN_OVER_MS = 5000;
/** A machine that stalls makes a takeover late, and hardly the next two as well. */
const TAKEOVERS = 3;

test.serial("kill -9 of the leader: another process takes over within 5 seconds", async (t) => {
  const database = await testDatabase(t);
  await database.pool.query(RUNS);
  const took: number[] = [];
  let leader = await startProcess(t, database, "leads");
  while (took.length < TAKEOVERS && !took.some((ms) => ms < TAKEN_OVER_MS)) {
    const standby = await startProcess(t, database, "runs");
    took.push(await takeover(database, leader));
    leader = standby;
  }
  t.log(`${took.map(Math.round)} ms`);
  t.true(Math.min(...took) < TAKEN_OVER_MS, `${took} ms`);
  await until("each takeover's job ran", async () => {
    const { rows } = await database.pool.query("select from runs where finished_at is not null");
    return rows.length === took.length;
  });
});

/** Kills the leader when its lease has the longest to go, and adds a job. Returns after how many milliseconds another leads. */
async function takeover(database: TestDatabase, leader: ChildProcess): Promise<number> {
  const [lease] = await leases(database);
  await until("it has renewed its lease", async () => {
    const [now] = await leases(database);
    return now && now.expires_at > lease!.expires_at;
  });
  leader.kill("SIGKILL");
  const killed = performance.now();
  await addPolicyJobs(database.pool, [{ policy: work, payload: { account: "a" } }]);
  await until("another leads", async () => {
    const [now] = await leases(database);
    return now && now.holder !== lease!.holder;
  });
  return performance.now() - killed;
}

/** A worker process that said this. */
async function startProcess(t: ExecutionContext, { url }: TestDatabase, said: string): Promise<ChildProcess> {
  const env = { ...process.env, DATABASE_URL: url, NO_LOG_SUCCESS: "1" };
  const child = spawn(process.execPath, [WORKER], { env, stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  for await (const line of createInterface({ input: child.stdout })) if (line === said) return child;
  throw new Error(`worker process ended without saying "${said}"`);
}

test("two processes lead a shard each, and a new shard finds a leader", async (t) => {
  const database = await testDatabase(t);
  const start = (shards: string[]) =>
    startWorker(t, {
      policies: [sharded],
      database,
      tasks: { work: async () => {} },
      preset: { loop: { shards } },
    });
  const first = await start(["s1", "s3"]);
  await first.utils.addJobs(["s1", "s2"].map((shard) => ({ identifier: "work", payload: { shard } })));
  await start(["s2", "s3"]);
  const led = await until("both shards are led", async () => {
    const leased = await leases(database);
    return ["s1", "s2"].every((shard) => leased.some((lease) => lease.shard === shard)) ? leased : null;
  });
  const holder = (shard: string) => led.find((lease) => lease.shard === shard)?.holder;
  t.not(holder("s1"), holder("s2"));
  await until("both jobs ran", async () => (await jobsLeft(database)) === 0);
  const before = performance.now();
  await first.utils.addJob(sharded, { shard: "s3" });
  await until("the new shard's job ran", async () => (await jobsLeft(database)) === 0);
  t.true(performance.now() - before < 5000, `${performance.now() - before} ms`);
});

async function jobsLeft({ pool }: TestDatabase): Promise<number> {
  const { rows } = await pool.query("select count(*)::int as n from dispatch_policy.jobs");
  return rows[0].n;
}

test("a second preset in a tree is an error", async (t) => {
  const { pool } = await testDatabase(t);
  const other = definePolicy("other", { partitionBy: "account" });
  const preset = {
    extends: [
      WorkerPreset,
      dispatchPolicyPreset({ policies: [one] }),
      dispatchPolicyPreset({ policies: [other] }),
    ],
    worker: { logger: silent },
  };
  await t.throwsAsync(run({ preset, pgPool: pool, taskList: {}, noHandleSignals: true }), {
    message: /DispatchPolicyPlugin/,
  });
});

for (const [how, policy, preset] of [
  ["in the preset", one, { enabled: false }],
  ["of a policy", definePolicy("work", { partitionBy: "account", enabled: false }), {}],
] as const) {
  test(`enabled: false ${how}: adds pass through`, async (t) => {
    const worker = await startWorker(t, { policies: [policy], preset, tasks: { work: async () => {} } });
    await until("it is off", async () => {
      const found = await worker.row("select enabled from dispatch_policy.policies");
      return found && !found.enabled;
    });
    // what waits since before is let go ungated
    const added = await worker.pool.query(
      "select staged from dispatch_policy.add_job('work', '{\"account\": \"a\"}')",
    );
    t.false(added.rows[0].staged);
    await worker.sees("job:success");
  });
}

test("disable lets everything go at once, enable governs again", async (t) => {
  const { task, open } = latch();
  t.teardown(open);
  const worker = await startWorker(t, { policies: [one], tasks: { work: task } });
  await worker.utils.addJobs([1, 2, 3].map(() => ({ identifier: "work", payload: account })));
  await worker.sees("job:start");
  await worker.utils.disable({ policy: "work" });
  await worker.sees("job:start", 3);
  const passed = await worker.utils.addJob("work", account);
  t.false(passed.staged);
  await worker.sees("job:start", 4);
  await worker.utils.enable({ policy: "work" });
  const staged = await worker.utils.addJob("work", account);
  t.true(staged.staged);
  open();
  await worker.sees("job:success", 5);
  await worker.everythingIsReleased();
});

test("a pool of two connections will do", async (t) => {
  const { url, pool } = await testDatabase(t);
  const small = quietPool(url, { max: 2 });
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [one] })],
    worker: { concurrentJobs: 4, pollInterval: 60_000, logger: silent },
  };
  const runner = await run({
    preset,
    pgPool: small,
    noHandleSignals: true,
    taskList: { work: async () => {} },
  });
  await addPolicyJobs(
    pool,
    Array.from({ length: 10 }, (_, n) => ({ policy: one, payload: { account: n % 3 } })),
  );
  await until(
    "all ran",
    async () => (await pool.query("select from dispatch_policy.jobs")).rows.length === 0,
  );
  await runner.stop();
  await small.end();
  t.pass();
});

for (const how of ["maxPoolSize", "pgPool"] as const) {
  test(`a pool of one connection, by ${how}, is refused: Graphile Worker listens with it, and could fetch nothing`, async (t) => {
    const { url } = await testDatabase(t);
    const single = quietPool(url, { max: 1 });
    t.teardown(() => single.end());
    const said: string[] = [];
    const { Logger } = await import("graphile-worker");
    const logger = new Logger(() => (level, message) => void (level === "error" && said.push(message)));
    const preset = {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies: [one] })],
      worker: { logger, ...(how === "maxPoolSize" && { connectionString: url, maxPoolSize: 1 }) },
    };
    const runner = await run({
      preset,
      ...(how === "pgPool" && { pgPool: single }),
      noHandleSignals: true,
      taskList: { work: async () => {} },
    });
    await runner.promise;
    const key = how === "pgPool" ? "pgPool: max" : "worker.maxPoolSize";
    t.is(said.length, 1, said.join("\n"));
    t.regex(said[0]!, new RegExp(`Cannot start: ${key} is 1, expected at least 2`));
  });
}

test("what operators do elsewhere takes effect at once", async (t) => {
  const worker = await startWorker(t, { policies: [one], tasks: { work: async () => {} } });
  await leads(worker);
  const elsewhere = await makePolicyUtils({ pgPool: worker.pool, policies: [one], logger: silent });
  t.teardown(() => elsewhere.release());
  let ran = 0;
  // heartbeats look for due work as well: meanwhile they wait for a lock
  const beatless = await worker.pool.connect();
  t.teardown(() => beatless.release(true));
  const runsSoon = async (what: string, act: () => Promise<unknown>) => {
    await beatless.query("begin");
    await table(beatless, "workers").lock();
    await act();
    ran++;
    await until(
      `${what} starts it`,
      () => worker.happened.filter(({ event }) => event === "job:success").length >= ran,
    );
    await beatless.query("rollback");
    await worker.everythingIsReleased();
  };
  const waits = () =>
    until("it waits", async () => (await worker.row("select from dispatch_policy.staged_jobs")) != null);

  await runsSoon("add", () => elsewhere.addJob(one, account));
  for (const target of [{ policy: "work" }, { policy: "work", partition: "a" }]) {
    await elsewhere.pause(target);
    await elsewhere.addJob(one, account);
    await waits();
    await runsSoon("resume", () => elsewhere.resume(target));
  }
  await elsewhere.hold({ policy: "work", partition: "a", forMs: 3_600_000 });
  await elsewhere.addJob(one, account);
  await waits();
  await runsSoon("resume after a hold", () => elsewhere.resume({ policy: "work", partition: "a" }));
  await elsewhere.setLimit({ policy: "work", gate: "concurrency", set: { max: 0 } });
  await elsewhere.addJob(one, account);
  await waits();
  await runsSoon("setLimit", () =>
    elsewhere.setLimit({ policy: "work", gate: "concurrency", set: { max: 1 } }),
  );
  const later = await elsewhere.addJob(one, account, { runAt: new Date(Date.now() + 3_600_000) });
  const isLater = { due_at: (its: string) => `${its} > now()` };
  await until(
    "no pass looks at it before its time",
    async () => (await table(worker.pool, "partitions").count(isLater)) === 1,
  );
  await runsSoon("rescheduleJobs", () => elsewhere.rescheduleJobs([later.id], { runAt: new Date() }));
  t.pass();
});

test("an idle process asks at most 20 times a minute", async (t) => {
  const worker = await startWorker(t, {
    policies: [one, definePolicy("other", { context: () => ({}), partitionBy: () => "a" })],
  });
  await leads(worker);
  const queries: string[] = [];
  const { query } = pg.Client.prototype;
  t.teardown(() => {
    pg.Client.prototype.query = query;
  });
  const own = new URL(worker.database.url).pathname.slice(1);
  const counted = async (ms: number) => {
    queries.length = 0;
    const { promise, resolve } = Promise.withResolvers<void>();
    setTimeout(resolve, ms);
    await promise;
    return queries.length;
  };
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    const [first] = args as [string | { text?: string }];
    const text = typeof first === "string" ? first : (first.text ?? "");
    if ((this as unknown as { database: string }).database === own && text.includes("dispatch_policy"))
      queries.push(text);
    return (query as (...args: unknown[]) => unknown).apply(this, args);
  } as typeof query;
  // shorter than between two heartbeats
  await until("its start is over: it asks nothing for two seconds", async () => (await counted(2000)) === 0);
  const seconds = 20;
  const n = await counted(seconds * 1000);
  t.true(n <= (20 * seconds) / 60 + 1, `${n} in ${seconds} s: ${queries.join("\n")}`);
});

test("pools of two presets that run one list of tasks each release their jobs", async (t) => {
  const tasks = { work: async () => {} };
  const start = async () => {
    const { pool } = await testDatabase(t);
    const preset = {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies: [one] })],
      worker: { logger: silent, pollInterval: 60_000 },
    };
    const workerPool = runTaskList({ preset, noHandleSignals: true }, tasks, pool);
    t.teardown(() => workerPool.gracefulShutdown());
    return pool;
  };
  for (const pool of [await start(), await start()]) {
    await until(
      "it is declared",
      async () => (await pool.query("select from dispatch_policy.policies")).rows[0],
    );
    for (const n of [1, 2, 3]) await addPolicyJob(pool, one, { account: "a", n });
    await until("all ran", async () => {
      const { rows } = await pool.query(
        "select from dispatch_policy.jobs union all select from dispatch_policy.in_flight_jobs",
      );
      return rows.length === 0;
    });
  }
  t.pass();
});

test("runOnce goes on after a failure", async (t) => {
  const { pool } = await testDatabase(t);
  // a call that takes longer than the usual back-off would run the first one again
  const policy = definePolicy("work", {
    partitionBy: "account",
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
    backoff: () => "1 hour",
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  await utils.addJobs([1, 2, 3, 4].map((n) => ({ identifier: "work", payload: { account: "a", n } })));
  await utils.release();
  const ran: number[] = [];
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy] })],
    worker: { logger: silent, concurrentJobs: 1 },
  };
  const task = async (payload: unknown) => {
    const { n } = payload as { n: number };
    ran.push(n);
    if (n < 3) throw new Error("broken");
  };
  await runOnce({ preset, pgPool: pool, noHandleSignals: true, taskList: { work: task } });
  t.deepEqual(ran, [1, 2, 3, 4]);
});

test("runOnce with ahead 0 admits for its workers, and waits for ends that are still to be recorded", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [one], logger: silent });
  await utils.addJobs([1, 2, 3, 4].map((n) => ({ identifier: "work", payload: { account: `${n}` } })));
  await utils.release();
  let ran = 0;
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [one], defaults: { ahead: 0 } })],
    worker: { logger: silent, concurrentJobs: 1, completeJobBatchDelay: 300 },
  };
  const task = async () => void ran++;
  await runOnce({ preset, pgPool: pool, noHandleSignals: true, taskList: { work: task } });
  t.is(ran, 4);
});

test("runOnce does not end while another routes, who may not have seen the last end", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [one], logger: silent });
  await utils.addJob("work", { account: "a" });
  await utils.release();
  const router = await pool.connect();
  t.teardown(() => router.release());
  await router.query("begin");
  await table(router, "turns").lock({ step: "route" });
  let ran = 0;
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [one] })],
    worker: { logger: silent, concurrentJobs: 1 },
  };
  const taskList = { work: async () => void ran++ };
  const ended = runOnce({ preset, pgPool: pool, noHandleSignals: true, taskList });
  await Promise.race([ended, delay(1000)]);
  await router.query("rollback");
  await ended;
  t.is(ran, 1);
});

test("a worker that cannot start is shut down, and says why", async (t) => {
  const { pool } = await testDatabase(t);
  await pool.query("drop schema dispatch_policy cascade");
  const said: string[] = [];
  const { Logger } = await import("graphile-worker");
  const logger = new Logger(() => (level, message) => void (level === "error" && said.push(message)));
  const preset = { extends: [WorkerPreset, dispatchPolicyPreset({ policies: [one] })], worker: { logger } };
  // runTaskList migrates nothing
  const workerPool = runTaskList({ preset, noHandleSignals: true }, { work: async () => {} }, pool);
  await workerPool.promise;
  t.true(
    said.some((message) => message.includes("Cannot start")),
    said.join("\n"),
  );
});

test("who leads is told by an event", async (t) => {
  const worker = await startWorker(t, { policies: [one] });
  const told: unknown[] = [];
  policyEvents(worker.runner.events).on("dispatchPolicy:leader", (event) => void told.push(event));
  await leads(worker);
  await worker.stop();
  t.deepEqual(told.at(-1), { policy: "work", shard: "default", leads: false });
});
