// Every way to run tasks, with every way to fetch and finish jobs: the policy holds, and every job is released.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import {
  type CompiledSharedOptions,
  run,
  runOnce,
  runTaskList,
  runTaskListOnce,
  type TaskList,
  WorkerPreset,
} from "graphile-worker";
import type pg from "pg";
import {
  addPolicyJobs,
  dispatchPolicyPreset,
  makePolicyUtils,
  runTickLoop,
  wrapTaskList,
} from "../../src/index.ts";
import { MODES, type Mode } from "../fixtures/governed/modes.ts";
import { RUNS, type Work, work, workTask } from "../fixtures/governed/work.ts";
import { atLength } from "../helpers/at-length.ts";
import { ROUNDED_MS } from "../helpers/clock.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

// Graphile Worker's runTaskListOnce has one client. With batch delays, it completes jobs on it while another statement runs,
// and pg warns. That is Graphile Worker's own, so this file is silent about it.
process.noDeprecation = true;

const FIXTURE = fileURLToPath(new URL("../fixtures/governed/", import.meta.url));
const CLI = fileURLToPath(new URL("../../node_modules/graphile-worker/dist/cli.js", import.meta.url));
const JOBS = 20;
/** Far from the poll interval of 60 s: what is freed is used at once. */
const SOON_MS = 45_000;

interface World {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly mode: Mode;
}

/** Starts a host that goes on until it is stopped. */
type Continuous = (world: World) => Promise<() => PromiseLike<unknown> | unknown>;
/** Runs a host that ends when it finds no job. */
type Once = (world: World) => Promise<unknown>;

const continuous: Record<string, Continuous> = {
  "run with a task list": async (world) => {
    const runner = await run({ ...optionsOf(world), taskList: { work: workTask } });
    return () => runner.stop();
  },
  "run with an overriding task list": async (world) => {
    const runner = await run(optionsOf(world), { work: workTask });
    return () => runner.stop();
  },
  "run with a task folder": async (world) => {
    const runner = await run({ ...optionsOf(world), taskDirectory: `${FIXTURE}tasks` });
    return () => runner.stop();
  },
  runTaskList: async (world) => {
    const { pgPool, ...options } = optionsOf(world);
    const workerPool = runTaskList(options, { work: workTask }, pgPool);
    return () => workerPool.gracefulShutdown();
  },
  "runTaskList with wrapTaskList": async ({ pool, mode }) => {
    const controller = new AbortController();
    const { signal } = controller;
    const loop = runTickLoop({ pgPool: pool, policies: [work], logger: silent, signal });
    const preset = { extends: [WorkerPreset], worker: workerOptions(mode) };
    const tasks = wrapTaskList({ work: workTask }, { policies: [work] });
    const workerPool = runTaskList({ preset, noHandleSignals: true }, tasks, pool);
    return async () => {
      await workerPool.gracefulShutdown();
      controller.abort();
      await loop;
    };
  },
  "the command line": async (world) => {
    const child = cli(world);
    return async () => {
      child.kill("SIGTERM");
      await once(child, "exit");
    };
  },
};

const onces: Record<string, Once> = {
  runOnce: (world) => runOnce({ ...optionsOf(world), taskList: { work: workTask } }),
  runTaskListOnce: async (world) => {
    const { pgPool, ...options } = optionsOf(world);
    const client = await pgPool.connect();
    try {
      await runTaskListOnce(options, { work: workTask }, client).promise;
    } finally {
      client.release();
    }
  },
  "the command line --once": async (world) => {
    const child = cli(world, "--once");
    const [code] = await once(child, "exit");
    if (code !== 0) throw new Error(`exit code ${code}`);
  },
};

function workerOptions(mode: Mode): GraphileConfig.WorkerOptions {
  return { concurrentJobs: 4, pollInterval: 60_000, logger: silent, ...MODES[mode] };
}

/** The pool is the test's: Graphile Worker does not wait for the end of one of its own. */
function optionsOf({ pool, mode }: World) {
  const preset: GraphileConfig.Preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [work] })],
    worker: workerOptions(mode),
  };
  return { preset, pgPool: pool, noHandleSignals: true };
}

function cli({ url, mode }: World, ...more: string[]) {
  const env = { ...process.env, MODE: mode, DATABASE_URL: url, NO_LOG_SUCCESS: "1" };
  const args = [CLI, "--config", `${FIXTURE}graphile.config.ts`, ...more];
  return spawn(process.execPath, args, { env, stdio: ["ignore", "ignore", "ignore"] });
}

for (const mode of Object.keys(MODES) as Mode[]) {
  for (const [name, start] of Object.entries(continuous)) {
    atLength(`${name}, ${mode}`, async (t) => {
      const world = await makeWorld(t, mode);
      await stage(world, JOBS / 2);
      const stop = await start(world);
      t.teardown(stop);
      await stage(world, JOBS / 2, { lastFails: true });
      await until("all jobs ran", async () => (await finished(world)) >= JOBS, { withinMs: SOON_MS });
      await everythingIsReleased(world);
      const peak = await checkRuns(t, world, JOBS);
      t.is(peak, 2, "the cap is made use of");
    });
  }

  // With localQueue a host of this kind ends with the first fetch that does not fill the queue, also without this
  // package: what was admitted meanwhile is for its next call. Without it one call does everything.
  const oneCall = !("localQueue" in MODES[mode]);
  const jobs = oneCall ? JOBS : 6;
  for (const [name, runToEnd] of Object.entries(onces)) {
    atLength(`${name}, ${mode}: ${oneCall ? "one call does all" : "one call after the other"}`, async (t) => {
      const world = await makeWorld(t, mode);
      await stage(world, jobs, { lastFails: true });
      for (let call = 0; call < (oneCall ? 1 : jobs + 2) && (await finished(world)) < jobs; call++) {
        await runToEnd(world);
      }
      await everythingIsReleased(world);
      await checkRuns(t, world, jobs);
    });
  }
}

for (const [name, start] of Object.entries(continuous)) {
  test.serial(`${name}: jobs added past the policy`, async (t) => {
    const world = await makeWorld(t, "plain");
    const stop = await start(world);
    t.teardown(stop);
    await addPast(world, JOBS);
    await until("all jobs ran", async () => (await finished(world)) >= JOBS, { withinMs: SOON_MS });
    await everythingIsReleased(world);
    await checkEachRanOnce(t, world, JOBS);
  });
}

for (const [name, runToEnd] of Object.entries(onces)) {
  test.serial(`${name}: jobs added past the policy, one call does all`, async (t) => {
    const world = await makeWorld(t, "plain");
    await addPast(world, JOBS);
    await runToEnd(world);
    await everythingIsReleased(world);
    await checkEachRanOnce(t, world, JOBS);
  });
}

test("what this package relies on inside Graphile Worker is as it expects", async (t) => {
  const { pool } = await testDatabase(t);
  const ran: { signal: AbortSignal; asked: number }[] = [];
  let asked = 0;
  const tasks: TaskList = {
    look: async (_payload, { abortSignal }) => void ran.push({ signal: abortSignal, asked }),
  };
  const found: Record<"options" | "queue" | "pool" | "worker" | "signal" | "notifier", unknown> = {
    options: null,
    queue: null,
    pool: null,
    worker: null,
    signal: null,
    notifier: null,
  };
  let fetches = 0;
  const listening = Promise.withResolvers<unknown>();
  const look: GraphileConfig.Plugin = {
    name: "LookPlugin",
    worker: {
      middleware: {
        // biome-ignore lint/suspicious/noExplicitAny: generic in the options of whoever starts up
        init(next): any {
          const compiled = next() as CompiledSharedOptions;
          found.options = (compiled._rawOptions as { taskList?: unknown }).taskList;
          const { events } = compiled;
          events.on("pool:create", ({ workerPool }) => {
            found.signal = workerPool.abortSignal;
          });
          events.on("localQueue:init", ({ localQueue }) => {
            const queue = localQueue as unknown as LocalQueue;
            found.queue = queue.tasks;
            found.pool = queue.workerPool.abortSignal;
            const { withRetries } = queue.withPgClient;
            queue.withPgClient.withRetries = (callback) => {
              fetches++;
              return withRetries(callback);
            };
          });
          events.on("pool:listen:success", listening.resolve);
          events.on("pool:listen:notification", ({ message }) => {
            found.notifier = message.processId;
          });
          events.on("worker:create", (event) => {
            found.worker = event.tasks;
          });
          return compiled;
        },
      },
    },
  };
  const runner = await run({
    preset: {
      extends: [WorkerPreset],
      plugins: [look],
      worker: { ...workerOptions("localQueue"), concurrentJobs: 1 },
    },
    pgPool: pool,
    noHandleSignals: true,
    taskList: tasks,
    forbiddenFlags: () => {
      asked++;
      return null;
    },
  });
  t.teardown(() => runner.stop());
  t.is(found.options, tasks, "_rawOptions.taskList");
  t.is(found.queue, tasks, "localQueue.tasks");
  t.is(found.worker, tasks, "worker:create");

  t.is(found.pool, found.signal, "localQueue.workerPool");
  await listening.promise; // what is said before is lost, and polling is far off

  // reschedule_jobs tells nobody: a worker is woken by what this package sends
  const later = "select id from graphile_worker.add_job('look', run_at => now() + interval '1 hour')";
  for (let job = 1; job <= 2; job++) {
    const { id } = (await pool.query(later)).rows[0];
    await pool.query("select graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now())", [id]);
    await pool.query(`select pg_notify('jobs:insert', '{"r": 0.5, "count": 1}')`);
    await until("the job ran", () => ran.length === job, { withinMs: SOON_MS });
  }
  t.is<unknown, unknown>(ran[0]?.signal, found.signal, "helpers.abortSignal is the pool's");
  t.true(ran[1]!.asked > ran[0]!.asked, "forbidden flags are asked for before each fetch");
  t.true(fetches > 1, "localQueue.withPgClient.withRetries fetches");
  t.is(typeof found.notifier, "number", "a notification says which backend it is of");
});

/** Of Graphile Worker's, what is not public. */
interface LocalQueue {
  readonly tasks: unknown;
  readonly workerPool: { readonly abortSignal: AbortSignal };
  readonly withPgClient: { withRetries(callback: unknown): unknown };
}

async function makeWorld(t: ExecutionContext, mode: Mode): Promise<World> {
  const { url, pool } = await testDatabase(t);
  await pool.query(RUNS);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  await utils.release();
  return { url, pool, mode };
}

async function stage({ pool }: World, count: number, { lastFails = false } = {}): Promise<void> {
  const payloads = Array.from({ length: count }, (_, n): Work => {
    return { account: "a", fails: lastFails && n === count - 1 };
  });
  await addPolicyJobs(
    pool,
    payloads.map((payload) => ({ policy: work, payload })),
  );
}

/** As a trigger would, or another language. */
async function addPast({ pool }: World, count: number): Promise<void> {
  await pool.query(
    `select graphile_worker.add_job('work', '{"account": "a"}') from generate_series(1, $1::int)`,
    [count],
  );
}

async function finished({ pool }: World): Promise<number> {
  const { rows } = await pool.query("select count(*)::int as n from runs where finished_at is not null");
  return rows[0].n;
}

/** Nothing is staged, in flight or counted; Graphile Worker has no job left but the one that failed for good. */
async function everythingIsReleased({ pool }: World): Promise<void> {
  let left: Record<string, number> = {};
  const isReleased = async () => {
    const { rows } = await pool.query(`select
      (select count(*)::int from dispatch_policy.staged_jobs) as staged,
      (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
      (select coalesce(sum(in_flight), 0)::int from dispatch_policy.limiters) as counters,
      (select count(*)::int from graphile_worker.jobs
        where not (attempts = max_attempts and last_error = 'failed as asked' and locked_at is null)) as jobs`);
    left = rows[0];
    return Object.values(left).every((n) => n === 0);
  };
  await until("everything is released", isReleased, { seen: () => left });
}

/** Returns how many jobs ran at once. */
async function checkRuns(t: ExecutionContext, world: World, jobs: number): Promise<number> {
  const { peak, runs } = await checkEachRanOnce(t, world, jobs);
  for (const { lag_ms, most_lag_ms } of runs) {
    t.is(lag_ms === null, most_lag_ms === null, "only jobs that a tick admitted have a lag");
    t.true(lag_ms >= 0 && lag_ms <= most_lag_ms + ROUNDED_MS, `lag ${lag_ms} of at most ${most_lag_ms}`);
  }
  // the failure halved the adaptive limit; the lags were fed to it
  const { rows } = await world.pool.query(
    "select current_max, lag_ewma_ms from dispatch_policy.limiters where gate = 'adaptive_concurrency'",
  );
  t.is(rows[0].current_max, 50);
  const most = Math.max(...runs.map(({ lag_ms }) => lag_ms));
  t.true(
    rows[0].lag_ewma_ms >= 0 && rows[0].lag_ewma_ms <= most + ROUNDED_MS,
    `average lag ${rows[0].lag_ewma_ms}`,
  );
  return peak;
}

async function checkEachRanOnce(t: ExecutionContext, { pool }: World, jobs: number) {
  const { rows: runs } = await pool.query(`select job_id, lag_ms,
    (extract(epoch from started_at - admitted_at) * 1000)::float8 as most_lag_ms,
    (select count(*)::int from runs b where b.started_at <= a.started_at and b.finished_at > a.started_at) as at_once
    from runs a`);
  t.is(new Set(runs.map((one) => one.job_id)).size, jobs, "each job ran");
  t.is(runs.length, jobs, "each job ran once");
  const peak = Math.max(...runs.map((one) => one.at_once));
  t.true(peak <= 2, `${peak} jobs ran at once`);
  return { peak, runs };
}
