// concurrency({ perWorker: true }): each worker pool has its share, and none runs more than that.
import test, { type ExecutionContext } from "ava";
import type { Task, TaskList } from "graphile-worker";
import { type AnyPolicy, definePolicy, policyEvents } from "../../src/index.ts";
import { type LentDatabase, lentDatabase } from "../helpers/lent.ts";
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
  /** How many jobs it has sent back. */
  readonly sentBack: () => number;
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
  policyEvents(worker.runner.events).on("dispatchPolicy:sendBack", () => {
    count += 1;
  });
  return { worker, runs, sentBack: () => count };
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
  t.log(`sent back: ${pools.map(({ sentBack }) => sentBack()).join(" and ")}`);
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

test("a pool that is busy with other tasks gets no job, and the full one sends back few", async (t) => {
  const database = await lentDatabase(t);
  const ends: (() => void)[] = [];
  const other: Task = () => new Promise<void>((end) => ends.push(end));
  const busy = await startPool(t, database, { slots: 2, tasks: { other } });
  await busy.worker.utils.addJobs(Array.from({ length: 2 }, () => ({ identifier: "other", payload: {} })));
  await until("it runs other tasks", () => ends.length === 2);
  const full = await startPool(t, database);
  await full.worker.utils.addJobs(jobsOf("a", 10));
  await until("the full pool sends jobs back", () => full.sentBack() >= 8, { withinMs: 60_000 });
  t.is(full.runs.running("a"), 2);
  const { local_delay: seconds } = await full.worker.row(
    "select max(local_delay) as local_delay from dispatch_policy._private_limiters",
  );
  t.true(seconds >= 0.5, `it is asked ever more rarely, after ${seconds} s`);
  for (const end of ends) end();
  await until("the other pool runs its share soon", () => busy.runs.running("a") === 2);
  await endAll([busy, full], ["a"], 10);
  t.log(`sent back: ${full.sentBack()}`);
});

test("a job that was sent back keeps its place, its key, its attempts and its tokens", async (t) => {
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
  // another pool that does not run anything makes room for one more, and this one fetches it
  await row(`insert into dispatch_policy._private_workers (pool_id, slots, tasks, stale_after, stale_at)
    values ('idle', 1, '{kept}', '1 hour', clock_timestamp() + interval '1 hour')`);
  const added = await utils.addJob(
    policy,
    { key: "a", job: "second" },
    { jobKey: "k", priority: 3, flags: ["mine"], maxAttempts: 4, expiresAfter: "1 day" },
  );
  const before = await row("select clock_timestamp() as at");
  await until("it was sent back", () => pool.sentBack() >= 2);
  await until("it is staged", async () => (await row("select from dispatch_policy.staged_jobs")) != null);
  const staged = await row(
    `select id::text, job_key, priority, flags, max_attempts, run_at <= $1 as was_due,
      expires_at > clock_timestamp() as expires, payload from dispatch_policy._private_staged_jobs`,
    [before.at],
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
