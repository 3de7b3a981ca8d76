// concurrency({ perWorker: true }): each worker pool has its share, and none runs more than that.
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { runOnce, type Task, type TaskList, WorkerPreset } from "graphile-worker";
import {
  type AnyPolicy,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  policyEvents,
} from "../../src/index.ts";
import { type LentDatabase, lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { table, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker, type TestWorker, type WorkerOptions } from "../helpers/worker.ts";

/** What one worker pool runs now, and the most it ever ran at once, by key. */
interface Runs {
  readonly now: Map<string, number>;
  readonly most: Map<string, number>;
  readonly ended: string[];
  readonly task: Task;
  /** Lets one run of a key end. */
  end(key: string): void;
  readonly running: (key: string) => number;
  /** Lets all runs end, also those that begin later. */
  endAll(): void;
}

function makeRuns(): Runs {
  const now = new Map<string, number>();
  const most = new Map<string, number>();
  const ended: string[] = [];
  let isOver = false;
  const waiting: { key: string; end: () => void }[] = [];
  const running = (key: string) => now.get(key) ?? 0;
  const add = (key: string, by: number) => {
    now.set(key, running(key) + by);
    most.set(key, Math.max(most.get(key) ?? 0, running(key)));
  };
  return {
    ...{ now, most, ended, running },
    end(key) {
      const place = waiting.findIndex((one) => one.key === key);
      waiting.splice(place, 1)[0]?.end();
    },
    endAll() {
      isOver = true;
      for (const one of waiting) one.end();
    },
    async task(payload) {
      const { key, job } = payload as { key: string; job: string };
      add(key, 1);
      if (!isOver) await new Promise<void>((end) => waiting.push({ key, end }));
      add(key, -1);
      ended.push(job);
    },
  };
}

const shared = definePolicy("shared", {
  partitionBy: "key",
  ahead: 50,
  gates: ({ concurrency }) => [concurrency({ max: 2, perWorker: true })],
});

interface Pool {
  readonly worker: TestWorker;
  readonly runs: Runs;
  /** How many jobs it has requeued. */
  readonly requeued: () => number;
}

interface PoolOptions {
  readonly policies?: readonly AnyPolicy[];
  readonly slots?: number;
  readonly tasks?: TaskList;
  readonly preset?: WorkerOptions["preset"];
}

async function startPool(
  t: ExecutionContext,
  database: LentDatabase,
  { policies = [shared], slots = 6, tasks = {}, preset = {} }: PoolOptions = {},
): Promise<Pool> {
  const runs = makeRuns();
  const own = Object.fromEntries(policies.map(({ identifier }) => [identifier, runs.task]));
  const worker = await startWorker(t, {
    ...{ policies, database, preset },
    tasks: { ...own, ...tasks },
    worker: { concurrentJobs: slots },
  });
  t.teardown(runs.endAll); // before the worker is stopped, which waits for them
  let count = 0;
  policyEvents(worker.runner.events).on("dispatchPolicy:requeue", () => {
    count += 1;
  });
  return { worker, runs, requeued: () => count };
}

function jobsOf(key: string, count: number, identifier = "shared") {
  return Array.from({ length: count }, (_, i) => ({ identifier, payload: { key, job: `${key}${i}` } }));
}

/** Ends runs until so many jobs have ended. */
async function endAll(
  pools: readonly Pool[],
  keys: readonly string[],
  count: number,
  look = () => {},
): Promise<void> {
  await until(`${count} jobs have ended`, () => {
    look();
    for (const { runs } of pools) for (const key of keys) runs.end(key);
    return pools.reduce((sum, { runs }) => sum + runs.ended.length, 0) >= count;
  });
}

test("scenario 45: two pools run max jobs of a key each, and no job is lost or runs twice", async (t) => {
  const database = await lentDatabase(t);
  const pools = [await startPool(t, database, { slots: 5 }), await startPool(t, database, { slots: 9 })];
  await pools[0]!.worker.utils.addJobs([...jobsOf("a", 12), ...jobsOf("b", 3)]);
  await until(
    "both run their share of a",
    () =>
      pools.every(({ runs }) => runs.running("a") === 2) &&
      pools[0]!.runs.running("b") + pools[1]!.runs.running("b") === 3,
    { seen: () => pools.map(({ runs }) => [...runs.now]) },
  );
  await endAll(pools, ["a", "b"], 15);
  const ended = pools.flatMap(({ runs }) => runs.ended).sort();
  t.deepEqual(ended, [...jobsOf("a", 12), ...jobsOf("b", 3)].map(({ payload }) => payload.job).sort());
  for (const { runs } of pools)
    for (const [key, most] of runs.most) t.true(most <= 2, `at most 2 of ${key} at once, ran ${most}`);
  await pools[0]!.worker.everythingIsReleased();
  t.log(`requeued: ${pools.map(({ requeued }) => requeued()).join(" and ")}`);
});

test("a pool that comes brings its share, and one that goes takes it away", async (t) => {
  const database = await lentDatabase(t);
  const first = await startPool(t, database, { preset: NO_HEARTBEAT });
  await first.worker.utils.addJobs(jobsOf("a", 30));
  await until("one pool runs its share", () => first.runs.running("a") === 2);
  t.deepEqual(await capOf(first), { max: 2, in_flight: 2 });
  // nobody releases, and no heartbeat comes: whoever waits learns of the pool from its registration
  const second = await startPool(t, database, { preset: NO_HEARTBEAT });
  const third = await startPool(t, database, { preset: NO_HEARTBEAT });
  const pools = [first, second, third];
  await until("each pool runs its share", () => pools.every(({ runs }) => runs.running("a") === 2));
  t.deepEqual(await capOf(first), { max: 6, in_flight: 6 });
  const stopped = third.worker.stop();
  let isStopped = false;
  void stopped.then(() => {
    isStopped = true;
  });
  await until("the third has ended its jobs", () => {
    third.runs.end("a");
    return isStopped;
  });
  const rest = [first, second];
  await endAll(rest, ["a"], 20, () => {
    const { running } = first.runs;
    t.true(running("a") <= 2 && second.runs.running("a") <= 2);
  });
  await until("the cap is that of two pools", async () => (await capOf(first)).max === 4);
});

async function capOf({ worker }: Pool) {
  return worker.row("select max, in_flight from dispatch_policy.limiters where gate = 'concurrency'");
}

test("a pool that is busy with other tasks gets no job, and the full one requeues few", async (t) => {
  const database = await lentDatabase(t);
  const ends: (() => void)[] = [];
  const other: Task = () => new Promise<void>((end) => ends.push(end));
  const busy = await startPool(t, database, { slots: 2, tasks: { other } });
  await busy.worker.utils.addJobs(Array.from({ length: 2 }, () => ({ identifier: "other", payload: {} })));
  await until("it runs other tasks", () => ends.length === 2);
  const full = await startPool(t, database);
  await full.worker.utils.addJobs(jobsOf("a", 10));
  await until("the full pool requeues jobs", () => full.requeued() >= 8, { withinMs: 60_000 });
  t.is(full.runs.running("a"), 2);
  const limiters = await table(database.pool, "limiters").all();
  const seconds = Math.max(...limiters.map(({ local_delay }) => local_delay));
  t.true(seconds >= 0.5, `it is asked ever more rarely, after ${seconds} s`);
  for (const end of ends) end();
  await until("the other pool runs its share soon", () => busy.runs.running("a") === 2);
  await endAll([busy, full], ["a"], 10);
  t.log(`requeued: ${full.requeued()}`);
});

test("a job that was requeued keeps its place, its key, its attempts and its tokens", async (t) => {
  const database = await lentDatabase(t);
  const policy = definePolicy("kept", {
    ...{ partitionBy: "key", ahead: 50, history: { keep: "1 hour" } },
    backoff: () => ({ after: "1 ms" }),
    gates: ({ concurrency, throttle }) => [
      throttle({ rate: 100, per: "1 day" }),
      concurrency({ max: 1, perWorker: true }),
    ],
  });
  const pool = await startPool(t, database, { policies: [policy] });
  const { utils, row } = pool.worker;
  await utils.addJob(policy, { key: "a", job: "first" });
  await until("it runs one", () => pool.runs.running("a") === 1);
  await idlePool(database, "kept");
  const added = await utils.addJob(
    policy,
    { key: "a", job: "second" },
    { jobKey: "k", priority: 3, flags: ["mine"], maxAttempts: 4, expiresAfter: "1 day" },
  );
  const before = await row("select clock_timestamp() as at");
  await until("it was requeued", () => pool.requeued() >= 2);
  // it goes and comes back all the time
  const staged = await until("it is staged", () =>
    row(
      `select id::text, job_key, priority, flags, max_attempts, run_at <= $1 as was_due,
        expires_at > clock_timestamp() as expires, payload from dispatch_policy.staged_jobs`,
      [before.at],
    ),
  );
  t.deepEqual(staged, {
    ...{ id: added.id, job_key: "k", priority: 3, flags: ["mine"], max_attempts: 4 },
    ...{ was_due: true, expires: true, payload: { key: "a", job: "second" } },
  });
  const { tokens } = await row("select tokens from dispatch_policy.limiters where gate = 'throttle'");
  t.true(tokens >= 98, `it paid once at most, ${tokens} tokens are left`);
  pool.runs.end("a");
  await until("the other runs", () => pool.runs.ended.length === 1 && pool.runs.running("a") === 1);
  pool.runs.end("a");
  await until("both have run", () => pool.runs.ended.length === 2);
  t.deepEqual(pool.runs.ended, ["first", "second"]);
  t.true(pool.worker.happened.every(({ event, attempt }) => attempt === 1 && event !== "job:error"));
});

/** A pool that runs nothing makes room for one share more, and who fetches the job is the full one. */
async function idlePool({ pool }: LentDatabase, task: string): Promise<void> {
  const stale_at = () => "clock_timestamp() + interval '1 hour'";
  const idle = { pool_id: "idle", slots: 1, tasks: [task], stale_after: "1 hour", stale_at };
  await table(pool, "workers").add(idle);
}

const one = (more: object = {}) =>
  definePolicy("one", {
    ...{ partitionBy: "key", ahead: 50, ...more },
    gates: ({ concurrency }) => [concurrency({ max: 1, perWorker: true })],
  });

test("jobs that go past their gates run in a full pool as well, and count there", async (t) => {
  const database = await lentDatabase(t);
  const policy = one({ unmanaged: "run" });
  const pool = await startPool(t, database, { policies: [policy] });
  const { utils, runner } = pool.worker;
  await utils.addJobs(jobsOf("a", 3, "one"));
  await until("it runs one", () => pool.runs.running("a") === 1);
  await utils.admit({ policy: "one", partition: "a", count: 1 });
  await until("an operator's runs beside it", () => pool.runs.running("a") === 2);
  await runner.addJob("one", { key: "a", job: "native" });
  await until("and so does a native one", () => pool.runs.running("a") === 3);
  await idlePool(database, "one");
  t.is((await utils.tick({ policy: "one" })).admitted, 0, "the others wait");
  t.is(pool.runs.running("a"), 3);
  await endAll([pool], ["a"], 4);
});

for (const past of [
  '{"key": "a", "job": "past", "n": 9007199254740993}',
  '{"key":"a","job":"past","x":"\\u0000"}',
  '{"key": "a", "job": "past", "x": [1e400, -0.0, "\\ud800"]}',
]) {
  test(`a job that was added past its policy is requeued as any other: ${past}`, async (t) => {
    const database = await lentDatabase(t);
    const policy = one();
    const pool = await startPool(t, database, { policies: [policy] });
    await pool.worker.utils.addJob(policy, { key: "a", job: "first" });
    await until("it runs one", () => pool.runs.running("a") === 1);
    await idlePool(database, "one");
    await pool.worker.row("select graphile_worker.add_job('one', $1)", [past]);
    await until("it was requeued", () => pool.requeued() > 0);
    const payload = await until(
      "it is staged",
      async () => (await pool.worker.row("select payload::text from dispatch_policy.staged_jobs"))?.payload,
    );
    t.is(payload, past);
    await endAll([pool], ["a"], 2);
    t.deepEqual(pool.runs.ended, ["first", "past"]);
  });
}

test("a job that fails and one that is cancelled leave their share, and a group ends once", async (t) => {
  const database = await lentDatabase(t);
  const policy = one({ backoff: () => ({ after: "1 ms" }) });
  const callbacks: unknown[] = [];
  let running = 0;
  let most = 0;
  let hangs = false;
  const task: Task = async (payload, { job, abortSignal }) => {
    running += 1;
    most = Math.max(most, running);
    const { job: name } = payload as { job: string };
    try {
      await delay(100);
      if (name === "fails" && job.attempts < 3) throw new Error("not yet");
      hangs = name === "hangs";
      if (hangs) await new Promise((_, fail) => abortSignal.addEventListener("abort", fail));
    } finally {
      running -= 1;
    }
  };
  const pool = await startPool(t, database, {
    policies: [policy, definePolicy("report", { partitionBy: "key" })],
    tasks: { one: task, report: (payload) => void callbacks.push(payload) },
  });
  const { utils } = pool.worker;
  await idlePool(database, "one");
  const names = ["fails", "hangs", "third", "fourth"];
  const added = await utils.addJobs(
    names.map((job) => ({ identifier: "one", payload: { key: "a", job } })),
    false,
    { then: { identifier: "report", payload: { key: "r" } } },
  );
  await until("the one that hangs runs", () => hangs);
  await utils.cancel({ ids: [added[1]!.id], by: "somebody" });
  await until("the callback comes", () => callbacks.length > 0);
  const [{ _group: counts }] = callbacks as [{ _group: Record<string, number> }];
  t.like(counts, { total: 4, succeeded: 3, failed: 1 });
  t.is(most, 1);
  t.log(`requeued: ${pool.requeued()}`);
  await utils.addJob(policy, { key: "a", job: "last" });
  await until("the share is free", async () => running === 0 && (await leftOf(pool)) === 0);
});

const SECOND = { payload: (its: string) => `${its} ->> 'job' = 'second'` };
const UNLOCK =
  "select graphile_worker.force_unlock_workers(array(select pool_id from dispatch_policy.workers))";

for (const [state, change, left = 2] of [
  ["a row stays locked", async () => {}],
  ["its job is gone", (pool) => workerTable(pool).remove(SECOND), 1],
  [
    "its slot is gone",
    async (pool) => {
      const { id } = await workerTable(pool).one(SECOND);
      await pool.query("select dispatch_policy.release_slots($1)", [id]);
    },
  ],
  ["its policy is off", (pool) => pool.query("select dispatch_policy.switch_policy('one', false)")],
  ["it was unlocked by hand", (pool) => pool.query(UNLOCK)],
] as [string, (pool: LentDatabase["pool"]) => Promise<unknown>, number?][]) {
  test(`a full pool that stops, and cannot requeue a job, ends when its other job has: ${state}`, async (t) => {
    const database = await lentDatabase(t);
    const policy = one();
    const pool = await startPool(t, database, { policies: [policy] });
    const { worker, runs } = pool;
    await worker.utils.addJob(policy, { key: "a", job: "first" });
    await until("it runs one", () => runs.running("a") === 1);
    await idlePool(database, "one");
    await refuse(database);
    await worker.utils.addJob(policy, { key: "a", job: "second" });
    await until("it has tried twice to requeue it", async () =>
      worker.row("select from refusals where last_value > 1"),
    );
    const { promise: fetchesNoMore, resolve } = Promise.withResolvers<unknown>();
    worker.runner.events.on("pool:gracefulShutdown", resolve);
    const stopped = worker.stop();
    await fetchesNoMore;
    await change(database.pool);
    runs.endAll();
    await stopped;
    t.is(runs.ended[0], "first");
    // Graphile Worker does not wait until an end is recorded
    await until("the other has run, waits elsewhere, or is gone", async () => {
      const { waits } = await worker.row(
        "select count(*)::int as waits from dispatch_policy.jobs where state in ('staged', 'ready')",
      );
      return runs.ended.length + waits === left;
    });
  });
}

/** No job can be requeued, as if another transaction had one of its rows locked. */
async function refuse({ pool }: LentDatabase): Promise<void> {
  await pool.query("create sequence refusals");
  await table(pool, "superseded_jobs").before(
    "insert",
    `if new.staged_id is not null then
       perform nextval('public.refusals');
       raise exception 'locked' using errcode = 'lock_not_available';
     end if`,
  );
}

test("a one-shot pool runs its share at a time, until no job is left", async (t) => {
  const database = await lentDatabase(t);
  const policy = one();
  const utils = await makePolicyUtils({ pgPool: database.pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await idlePool(database, "one");
  await utils.addJobs(jobsOf("a", 5, "one"));
  let [running, most, ended] = [0, 0, 0];
  await runOnce({
    preset: {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy] })],
      worker: { concurrentJobs: 4, logger: silent },
    },
    pgPool: database.pool,
    noHandleSignals: true,
    taskList: {
      async one() {
        running += 1;
        most = Math.max(most, running);
        await delay(50);
        running -= 1;
        ended += 1;
      },
    },
  });
  t.deepEqual({ most, ended }, { most: 1, ended: 5 });
});

async function leftOf({ worker }: Pool): Promise<number> {
  const { n } = await worker.row(`select (select count(*) from dispatch_policy.staged_jobs)
    + (select count(*) from dispatch_policy.in_flight_jobs) as n`);
  return Number(n);
}
