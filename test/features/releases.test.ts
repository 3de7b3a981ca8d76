// How often a worker process frees what its jobs held.
import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { Logger, type WorkerEvents } from "graphile-worker";
import { type FinishedJob, makeEngine } from "../../src/db/engine.ts";
import { noEvents } from "../../src/events.ts";
import {
  type AnyPolicy,
  concurrency as concurrencyGate,
  definePolicy,
  policyEvents,
} from "../../src/index.ts";
import { makeReleaseQueue } from "../../src/run/release-queue.ts";
import { concurrency, type Engine, engine, throttle, until } from "../helpers/engine.ts";
import { type Ctx, scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, workerTable } from "../helpers/table.ts";
import { NO_HEARTBEAT, startWorker } from "../helpers/worker.ts";

const JOBS = 5000;
const SLOTS = 6;
/** What the workers do in a second is known after one: by then most of the jobs are left. */
const JOB_MS = 5;
/** A quarter of a second at most. A release comes earlier if half of what waits has ended, as it does when the pace grows. */
const APART_MS = 100;
const IN_A_ROW = 5;
const UNWAITED_MS = 20;

/** A worker process's queue, over a session of its own. */
async function queueOn(
  world: Engine,
  options: { rests?: boolean; onReleased?: () => void; events?: WorkerEvents; logger?: Logger } = {},
) {
  const client = await world.session();
  return makeReleaseQueue({
    withPgClient: (callback) => callback(client as never),
    engine: makeEngine("dispatch_policy"),
    events: noEvents,
    logger: silent,
    ...options,
  });
}

/** When each release began. */
function startsOfReleases() {
  const starts: number[] = [];
  const events: WorkerEvents = new EventEmitter();
  policyEvents(events).on("dispatchPolicy:release", ({ durationMs }) => {
    starts.push(performance.now() - durationMs);
  });
  return { events, starts };
}

const gapsOf = (starts: readonly number[]) =>
  starts.slice(1).map((start, n) => start - (starts[n] as number));
/** Timers are a little early. */
const isApart = (ms: number, leastMs: number) => ms > leastMs * 0.95;

function longestRun(values: readonly number[], holds: (value: number) => boolean): number {
  const ends = values.flatMap((value, n) => (holds(value) ? [] : [n]));
  const bounds = [-1, ...ends, values.length];
  return Math.max(...bounds.slice(1).map((end, n) => end - (bounds[n] as number) - 1));
}

function succeeded(job: string): FinishedJob {
  return { job, admission: null, ok: true, lagMs: 1, attempt: 1, retry: null };
}

test("releases are apart while the workers have enough to do, and none is left at the end", async (t) => {
  const it = await scenario(t, {});
  await it.stage(`${JOBS}@a`);
  const { events, starts } = startsOfReleases();
  let released = 0;
  policyEvents(events).on("dispatchPolicy:release", ({ jobs }) => {
    released += jobs;
  });
  const worker = await it.worker({ tasks: { p: () => delay(JOB_MS) }, slots: SLOTS, events });
  const longestApart = () => longestRun(gapsOf(starts), (ms) => isApart(ms, APART_MS));
  // before the workers' pace is known they may run dry
  await until("releases are apart", () => longestApart() >= IN_A_ROW || released > JOBS * 0.9);
  await worker.stop();
  const longest = longestApart();
  t.log(`${released} jobs in ${starts.length} releases, up to ${longest} in a row ${APART_MS} ms apart`);
  t.true(longest >= IN_A_ROW, `${gapsOf(starts).map(Math.round)}`);
  const leaked = async () => {
    const [row] = await it.rows(`select (select count(*) from dispatch_policy.in_flight_jobs)::int
      - (select count(*) from graphile_worker.jobs)::int as n`);
    return row.n;
  };
  // Graphile Worker records an end beside its release, and may be later
  await until("each end is recorded", async () => (await leaked()) >= 0);
  t.is(await leaked(), 0, "what has ended holds nothing");
});

test("a rest ends where somebody wants a release, and where a job of another policy ends", async (t) => {
  const it = await engine(t, { gates: [], ahead: 10 });
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('pool', 1, $1, 'host', 1, '1 hour', '0')",
    [["p"]],
  );
  await it.stage(Array.from({ length: 60 }, (_, n) => `key ${n}`));
  const { events, starts } = startsOfReleases();
  const releases = await queueOn(it, { rests: true, events });
  const ends = async (policy: string) => {
    await it.passes();
    const durations = () => `array[row('p', 1)::${nameOf("task_duration")}]`;
    await it.table("limiters").set({ finished_per_second: 1, durations });
    const [job] = await it.inFlight();
    await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
    return releases.push(succeeded(job as string), policy);
  };
  const restFor = async (policy: string, meanwhile = () => {}) => {
    await ends("p");
    const ended = ends(policy);
    await delay(10);
    meanwhile();
    await ended;
    return gapsOf(starts).at(-1) as number;
  };
  t.true(isApart(await restFor("p"), APART_MS), `${gapsOf(starts)}`);
  const isCut = async (ms: Promise<number>) => !isApart(await ms, APART_MS);
  await until("a hurried rest is short", () => isCut(restFor("p", () => releases.hurry())));
  await until("another policy's is none", () => isCut(restFor("q")));
});

test("jobs whose slots nobody waits for are released together, and wake no tick loop", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage([...Array.from({ length: 8 }, (_, n) => `alone ${n}`), "two", "two"]);
  await it.passes();
  const jobs = await it.inFlight();
  const { events, starts } = startsOfReleases();
  let woken = 0;
  const releases = await queueOn(it, { rests: true, events, onReleased: () => woken++ });
  await workerTable(it.pool).set({ attempts: 1 }, { id: jobs[0] });
  const failed = {
    ok: false,
    retry: { attempt: 1, after: 60, task: it.policy, priority: 0, maxAttempts: 25 },
  };
  await releases.push({ ...succeeded(jobs[0] as string), ...failed }, "p");
  t.is(woken, 1, "a loop has to know when its retry is due");
  woken = 0;
  for (const job of jobs.slice(1, -1)) await releases.push(succeeded(job), "p");
  const gaps = gapsOf(starts);
  t.is(gaps.length, 7);
  t.true(
    gaps.every((ms) => isApart(ms, UNWAITED_MS)),
    `${gaps}`,
  );
  t.is(woken, 0);
  await releases.push(succeeded(jobs.at(-1) as string), "p");
  t.is(woken, 1, "the second job of its partition waits");
  await it.passes();
  t.is((await it.inFlight()).length, 1);
});

test("a job that ends just as the last release does is released too", async (t) => {
  const world = await engine(t, { gates: [concurrency(100)] });
  await world.stage(Array.from({ length: 20 }, () => "a"));
  await world.passes();
  const jobs = (await world.inFlight()).map(succeeded);
  t.is(jobs.length, 20);
  const releases = await queueOn(world);
  // that many turns of the microtask queue after it
  for (let turns = 0; jobs.length > 0; turns++) {
    await releases.push(jobs.pop()!, "p");
    for (let turn = 0; turn < turns; turn++) await null;
    void releases.push(jobs.pop()!, "p");
    await releases.idle();
    t.is((await world.inFlight()).length, jobs.length, `${turns} turns after it`);
  }
});

test("a settled job whose throttle stays locked is released after a second, and keeps its estimate", async (t) => {
  const it = await engine(t, { gates: [throttle(10, { per: 3600 }), concurrency(2)] });
  await it.stage(["a", "a"], { cost: 4 });
  await it.passes();
  const [job, failing] = (await it.inFlight()) as [string, string];
  await workerTable(it.pool).set({ attempts: 1, last_error: "badly" }, { id: failing });
  const retry = { attempt: 1, after: 60, task: it.policy, priority: 0, maxAttempts: 25 };
  const app = await it.session();
  await app.query("begin");
  await app.query("select dispatch_policy.take('p', 'throttle', 'a', 0)");
  const warnings: string[] = [];
  const logger = new Logger(() => (level, message) => void (level === "warning" && warnings.push(message)));
  const releases = await queueOn(it, { logger });
  void releases.push({ ...succeeded(job), settled: { cost: 1 } }, "p");
  void releases.push({ ...succeeded(failing), ok: false, settled: { cost: 1 }, retry }, "p");
  await releases.idle();
  t.deepEqual(await it.inFlight(), []);
  t.deepEqual(warnings, [
    "Stopped settling 2 finished jobs, to free their slots: a throttle or one of the jobs is still locked",
  ]);
  await app.query("rollback");
  t.is(Math.round((await it.limiter("throttle")).tokens), 2);
  t.is(await it.staged(), 1, "its retry is staged");
});

test("jobs that the database refuses to release are left to a sweep, and do not delay the others of their flush", async (t) => {
  const world = await engine(t, { gates: [concurrency(100)] });
  await world.stage(Array.from({ length: 20 }, () => "a"));
  await world.passes();
  const jobs = await world.inFlight();
  const bad = [jobs[3], jobs[4], jobs[17]];
  const accepts = await refusesToRelease(world, bad as string[]);
  const { logger, warnings } = listener();
  const releases = await queueOn(world, { logger });
  await Promise.all(jobs.map((job) => releases.push(succeeded(job), "p")));
  await releases.idle();
  t.deepEqual(await world.inFlight(), bad);
  t.deepEqual(
    warnings,
    bad.map((job) => `Could not release job ${job} of policy p, a sweep frees its slot: job ${job} is bad`),
  );
  await accepts();
  await releases.push(succeeded(bad[0] as string), "p");
  t.deepEqual(await world.inFlight(), bad.slice(1), "the queue goes on");
});

test("a flush that meets a lock is repeated as a whole", async (t) => {
  const world = await engine(t, { gates: [concurrency(100)] });
  await world.stage(["a", "a", "a"]);
  await world.passes();
  const jobs = await world.inFlight();
  const accepts = await refusesToRelease(world, jobs, "lock_not_available");
  const { logger, warnings, details } = listener();
  const releases = await queueOn(world, { logger });
  await Promise.all(jobs.map((job) => releases.push(succeeded(job), "p")));
  await until("it has been tried again", () => details.length >= 1);
  t.is(warnings.length, 1);
  const said = [...warnings, ...details];
  t.true(said.every((line) => /^Could not release 3 finished jobs, trying again/.test(line)));
  await accepts();
  await releases.idle();
  t.deepEqual(await world.inFlight(), []);
});

/** From now on PostgreSQL refuses to release these. Returns what takes it back. */
function refusesToRelease(world: Engine, jobIds: string[], condition = "raise_exception") {
  return world.table("in_flight_jobs").before(
    "delete",
    `if old.job_id = any('{${jobIds.join(",")}}'::bigint[]) then
       raise ${condition} using message = format('job %s is bad', old.job_id);
     end if`,
  );
}

function listener() {
  const [warnings, details]: [string[], string[]] = [[], []];
  const logger = new Logger(() => (level, message) => {
    if (level === "warning") warnings.push(message);
    if (level === "debug") details.push(message);
  });
  return { logger, warnings, details };
}

test("whoever waits for what a job of another policy held is woken by the release, not by a heartbeat", async (t) => {
  const [p, q] = ["p", "q"].map((name) =>
    definePolicy(name, { partitionBy: "k", gates: ({ concurrency }) => [concurrency({ max: 1 })] }),
  ) as [AnyPolicy, AnyPolicy];
  const opened: (() => void)[] = [];
  const ran: string[] = [];
  const worker = await startWorker(t, {
    policies: [p, q],
    worker: { concurrentJobs: 1 },
    tasks: {
      p: async () => void ran.push("p"),
      q: async () => void ran.push("q"),
      block: () => new Promise<void>((open) => void opened.push(open)),
    },
    preset: NO_HEARTBEAT,
  });
  const inFlight = async () => {
    const { rows } = await worker.pool.query("select policy from dispatch_policy.in_flight_jobs");
    return rows.map(({ policy }) => policy).join();
  };
  for (let round = 0; round < 3; round++) {
    await worker.utils.addJob("block", {});
    await until("the worker is at work", () => opened.length === round + 1);
    await worker.utils.addJob(p, { k: "a" }, { jobKey: "key" });
    await until("it is admitted", async () => (await inFlight()) === "p");
    await worker.utils.addJob(q, { k: "a" }, { jobKey: "key" }); // takes its place, and holds both slots
    await until("it has moved", async () => (await inFlight()) === "q");
    await worker.utils.addJob(p, { k: "a" });
    await until("another waits", async () => {
      const { rows } = await worker.pool.query(
        "select from dispatch_policy.partitions where blocked_on is not null",
      );
      return rows.length === 1;
    });
    opened[round]!();
    await until("both ran", () => ran.length === 2 * (round + 1));
    await worker.everythingIsReleased();
  }
  t.is(ran.join(), "q,p,q,p,q,p");
});

test("where partitions wait for slots of their own, jobs go without a pass each, one at a time", async (t) => {
  const it = await scenario(t, { gates: [concurrencyGate<Ctx>({ max: 1 })] });
  await it.stage("30@a", {});
  await it.stage("30@b", {});
  const events: WorkerEvents = new EventEmitter();
  const admitted = { byPasses: 0, byReleases: 0 };
  policyEvents(events).on("dispatchPolicy:admit", ({ shard, count }) => {
    admitted[shard === null ? "byReleases" : "byPasses"] += count;
  });
  const running = new Map<string, number>();
  let most = 0;
  let ran = 0;
  await it.worker({
    tasks: {
      p: async (payload) => {
        const { key } = payload as { key: string };
        running.set(key, (running.get(key) ?? 0) + 1);
        most = Math.max(most, running.get(key)!);
        await delay(2);
        running.set(key, running.get(key)! - 1);
        ran++;
      },
    },
    ...{ slots: SLOTS, events },
  });
  await until("all have run", () => ran === 60);
  t.is(most, 1);
  // a job that a release admits may have run before the release is told of
  await until("each admission is told", () => admitted.byPasses + admitted.byReleases >= 60);
  t.is(admitted.byPasses + admitted.byReleases, 60);
  t.true(admitted.byReleases > 30, JSON.stringify(admitted));
});
