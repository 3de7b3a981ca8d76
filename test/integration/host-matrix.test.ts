// Every way to run tasks, with every way to fetch and finish jobs: the policy holds, and every job is released.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { run, runOnce, runTaskList, runTaskListOnce, WorkerPreset } from "graphile-worker";
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
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

const FIXTURE = fileURLToPath(new URL("../fixtures/governed/", import.meta.url));
const CLI = fileURLToPath(new URL("../../node_modules/graphile-worker/dist/cli.js", import.meta.url));
const JOBS = 20;
/** Far from the poll interval of 60 s: what is freed is used at once. */
const SOON_MS = 15_000;

interface World {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly mode: Mode;
}

/** Starts a host that goes on until it is stopped. */
type Continuous = (world: World) => Promise<() => Promise<unknown>>;
/** Runs a host that ends when it finds no job. */
type Once = (world: World) => Promise<unknown>;

const continuous: Record<string, Continuous> = {
  "run with a task list": async (world) => {
    const runner = await run({ preset: presetOf(world), taskList: { work: workTask }, ...QUIET });
    return () => runner.stop();
  },
  "run with an overriding task list": async (world) => {
    const runner = await run({ preset: presetOf(world), ...QUIET }, { work: workTask });
    return () => runner.stop();
  },
  "run with a task folder": async (world) => {
    const runner = await run({ preset: presetOf(world), taskDirectory: `${FIXTURE}tasks`, ...QUIET });
    return () => runner.stop();
  },
  runTaskList: async (world) => {
    const workerPool = runTaskList({ preset: presetOf(world), ...QUIET }, { work: workTask }, world.pool);
    return () => workerPool.gracefulShutdown();
  },
  "runTaskList with wrapTaskList": async ({ url, pool, mode }) => {
    const controller = new AbortController();
    const loop = runTickLoop({
      connectionString: url,
      policies: [work],
      logger: silent,
      signal: controller.signal,
    });
    const preset = { extends: [WorkerPreset], worker: workerOptions(url, mode) };
    const tasks = wrapTaskList({ work: workTask }, { policies: [work] });
    const workerPool = runTaskList({ preset, ...QUIET }, tasks, pool);
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
  runOnce: (world) => runOnce({ preset: presetOf(world), taskList: { work: workTask }, ...QUIET }),
  runTaskListOnce: async (world) => {
    const client = await world.pool.connect();
    try {
      await runTaskListOnce({ preset: presetOf(world), ...QUIET }, { work: workTask }, client).promise;
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

const QUIET = { noHandleSignals: true };

function workerOptions(url: string, mode: Mode): GraphileConfig.WorkerOptions {
  return { connectionString: url, concurrentJobs: 4, pollInterval: 60_000, logger: silent, ...MODES[mode] };
}

function presetOf({ url, mode }: World): GraphileConfig.Preset {
  return {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [work] })],
    worker: workerOptions(url, mode),
  };
}

function cli({ url, mode }: World, ...more: string[]) {
  const env = { ...process.env, MODE: mode, DATABASE_URL: url, NO_LOG_SUCCESS: "1" };
  const args = [CLI, "--config", `${FIXTURE}graphile.config.ts`, ...more];
  return spawn(process.execPath, args, { env, stdio: ["ignore", "ignore", "ignore"] });
}

for (const mode of Object.keys(MODES) as Mode[]) {
  for (const [name, start] of Object.entries(continuous)) {
    test.serial(`${name}, ${mode}`, async (t) => {
      const world = await makeWorld(t, mode);
      await stage(world, JOBS / 2);
      const stop = await start(world);
      t.teardown(stop);
      await stage(world, JOBS / 2, { lastFails: true });
      await until("all jobs ran", async () => (await finished(world)) >= JOBS, { withinMs: SOON_MS });
      await everythingIsReleased(world);
      await checkRuns(t, world, { peak: 2 });
    });
  }

  // With localQueue a host of this kind ends with the first fetch that does not fill the queue, also without this
  // package: what was admitted meanwhile is for its next call. Without it one call does everything.
  const calls = "localQueue" in MODES[mode] ? "several calls" : "one call";
  for (const [name, runToEnd] of Object.entries(onces)) {
    test.serial(`${name}, ${mode}: ${calls}`, async (t) => {
      const world = await makeWorld(t, mode);
      await stage(world, JOBS, { lastFails: true });
      const most = calls === "one call" ? 1 : JOBS + 2;
      for (let call = 0; call < most && (await finished(world)) < JOBS; call++) await runToEnd(world);
      await everythingIsReleased(world);
      await checkRuns(t, world, { peak: name === "runTaskListOnce" ? 1 : 2 });
    });
  }
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

async function finished({ pool }: World): Promise<number> {
  const { rows } = await pool.query("select count(*)::int as n from runs where finished_at is not null");
  return rows[0].n;
}

/** Nothing is staged, in flight or counted; Graphile Worker has no job left but the one that failed for good. */
async function everythingIsReleased({ pool }: World): Promise<void> {
  await until("everything is released", async () => {
    const { rows } = await pool.query(`select
      (select count(*)::int from dispatch_policy.staged_jobs) as staged,
      (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
      (select coalesce(sum(in_flight), 0)::int from dispatch_policy.limiters) as counters,
      (select count(*)::int from graphile_worker.jobs
        where not (attempts = max_attempts and last_error = 'failed as asked' and locked_at is null)) as jobs`);
    return Object.values(rows[0]).every((n) => n === 0);
  });
}

async function checkRuns(t: ExecutionContext, { pool }: World, { peak }: { peak: number }): Promise<void> {
  const { rows: runs } = await pool.query(`select job_id, lag_ms,
    (select count(*)::int from runs b where b.started_at <= a.started_at and b.finished_at > a.started_at) as at_once
    from runs a`);
  t.is(new Set(runs.map((one) => one.job_id)).size, JOBS, "each job ran");
  t.is(runs.length, JOBS, "each job ran once");
  const most = Math.max(...runs.map((one) => one.at_once));
  t.true(most <= 2, `${most} jobs ran at once`);
  t.is(most, peak, "the cap was made use of");
  for (const { lag_ms } of runs) t.true(lag_ms >= 0 && lag_ms < 10_000, `lag ${lag_ms}`);
  // the failure halved the adaptive limit; the lags were fed to it
  const { rows } = await pool.query(
    "select current_max, lag_ewma_ms from dispatch_policy.limiters where gate = 'adaptive_concurrency'",
  );
  t.is(rows[0].current_max, 50);
  t.true(rows[0].lag_ewma_ms >= 0 && rows[0].lag_ewma_ms < 10_000, `average lag ${rows[0].lag_ewma_ms}`);
}
