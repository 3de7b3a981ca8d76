// A worker under the preset, in this process, on a database that nobody else uses.
import type { ExecutionContext } from "ava";
import { Logger, type Runner, run, type TaskList, WorkerPreset } from "graphile-worker";
import type pg from "pg";
import { type AnyPolicy, dispatchPolicyPreset, makePolicyUtils, type PolicyUtils } from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import { lentDatabase } from "./lent.ts";
import { silent } from "./silent.ts";
import { until } from "./until.ts";

type DispatchPolicyOptions = Parameters<typeof dispatchPolicyPreset>[0];

/** Where it runs. */
export type Place = Pick<TestDatabase, "url" | "pool">;

export interface WorkerOptions {
  readonly policies: readonly AnyPolicy[];
  readonly tasks?: TaskList;
  /** Default: one for the test alone. */
  readonly database?: Place;
  readonly worker?: GraphileConfig.WorkerOptions;
  readonly preset?: Omit<DispatchPolicyOptions, "policies">;
}

export interface Line {
  readonly level: string;
  readonly message: string;
  readonly scope: Record<string, unknown>;
  readonly meta: unknown;
}

/** A job's event of Graphile Worker, with the job as it was then. */
export interface Happened {
  readonly event: string;
  readonly id: string;
  readonly attempt: number;
  readonly priority: number;
  readonly payload: unknown;
  readonly error: string | undefined;
  /** By performance.now(). */
  readonly at: number;
}

export interface TestWorker {
  readonly database: Place;
  readonly pool: pg.Pool;
  readonly runner: Runner;
  readonly utils: PolicyUtils;
  /** What was logged so far. */
  readonly log: readonly Line[];
  /** What happened to jobs so far: job:start, job:success, job:error, job:failed. */
  readonly happened: readonly Happened[];
  /** The one row of a query. */
  // biome-ignore lint/suspicious/noExplicitAny: a row of any shape
  row(text: string, values?: unknown[]): Promise<any>;
  /** Resolves once this happened to so many jobs. */
  sees(event: string, count?: number): Promise<readonly Happened[]>;
  /**
   * Resolves once nothing is in flight, every counter says so, what happened is read, and Graphile Worker has so many jobs locked (default 0): it
   * records an end beside the release, and may be later.
   */
  everythingIsReleased(locked?: number): Promise<void>;
  stop(): Promise<void>;
}

/** No heartbeat and no sweep comes within a test: whatever happens then, somebody has notified the worker. */
export const NO_HEARTBEAT = {
  loopHeartbeat: "10 minutes",
  workerHeartbeatInterval: "10 minutes",
  workerStaleAfter: "1 hour",
  sweepInterval: "10 minutes",
} as const;

/** Polls so rarely that what a test waits for does not come from polling. */
const POLL_MS = 60_000;

/** Resolves once a worker has looked at its set-up. It asks the same pool, beside its first jobs. */
export const isChecked = (log: readonly { readonly message: string }[]) =>
  until("the set-up is checked", () => log.some(({ message }) => message === "The set-up has been checked"));

export async function startWorker(t: ExecutionContext, options: WorkerOptions): Promise<TestWorker> {
  const database = options.database ?? (await lentDatabase(t));
  const { pool } = database;
  const log: Line[] = [];
  const happened: Happened[] = [];
  const listeners = async (): Promise<number[]> => {
    const { rows } = await pool.query(
      "select pid from pg_stat_activity where datname = current_database() and query = 'listen dispatch_policy'",
    );
    return rows.map(({ pid }) => pid);
  };
  const others = await listeners();
  const logger = new Logger((scope) => (level, message, meta) => {
    log.push({ level, message, meta, scope: scope as Record<string, unknown> });
  });
  const { policies, tasks = {} } = options;
  const preset: GraphileConfig.Preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies, ...options.preset })],
    worker: { concurrentJobs: 4, pollInterval: POLL_MS, logger, ...options.worker },
  };
  const runner = await run({ preset, pgPool: pool, noHandleSignals: true, taskList: tasks });
  for (const event of ["job:start", "job:success", "job:error", "job:failed"] as const) {
    runner.events.on(event, ({ job: { id, attempts, priority, payload }, ...rest }) => {
      const { error } = rest as { error?: Error };
      happened.push({
        event,
        id,
        attempt: attempts,
        priority,
        payload,
        error: error?.message,
        at: performance.now(),
      });
    });
  }
  const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  // what is said before is lost, and polling is far off; this package listens right after Graphile Worker
  await until("the worker listens", async () => (await listeners()).some((pid) => !others.includes(pid)));
  let runs = true; // one that stopped by itself refuses to be stopped
  const over = () => {
    runs = false;
  };
  runner.promise.then(over, over);
  let stopping: Promise<void> | undefined;
  const stop = () => {
    stopping ??= Promise.resolve(runs ? runner.stop() : undefined).then(() => utils.release());
    return stopping;
  };
  t.teardown(stop);
  const row: TestWorker["row"] = async (text, values) => (await pool.query(text, values)).rows[0];
  return {
    ...{ database, pool, runner, utils, log, happened, row, stop },
    sees: (event, count = 1) =>
      until(`${event}, ${count} times`, () => {
        const such = happened.filter((one) => one.event === event);
        return such.length >= count ? such : null;
      }),
    everythingIsReleased: async (locked = 0) => {
      await until("everything is released, and Graphile Worker has recorded its ends", async () => {
        const left = await row(`select (select count(*) from dispatch_policy.in_flight_jobs)
            + (select coalesce(sum(in_flight), 0) from dispatch_policy.limiters)
            + (select count(*) from dispatch_policy_internal.events) as held,
          (select count(*) from graphile_worker.jobs where locked_at is not null) as locked`);
        return Number(left.held) === 0 && Number(left.locked) === locked;
      });
    },
  };
}
