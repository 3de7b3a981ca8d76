import { EventEmitter } from "node:events";
import {
  type Job,
  Logger,
  type RunOnceOptions,
  runTaskListOnce,
  type TaskList,
  WorkerPreset,
} from "graphile-worker";
import { checkOptions, show } from "../checks/options.ts";
import type { Pool } from "../db/stream-pool.ts";
import { ArgumentError } from "../errors.ts";
import { type AnyPolicy, dispatchPolicyPreset } from "../index.ts";
import { TICK_TASK } from "../policy/job.ts";

/** What {@link runDueJobs} takes: a pool, the tasks, and either `policies` or `preset`. */
export interface RunDueJobsOptions {
  /** The pool: {@link pglitePool}'s, or any of pg. Both schemas must be there: `makePolicyUtils` sets them up. */
  pgPool: Pool;
  /** The tasks, as Graphile Worker takes them. */
  taskList: TaskList;
  /** The policies, if there is no `preset`. */
  policies?: readonly AnyPolicy[] | undefined;
  /** Your own preset, which has `dispatchPolicyPreset` among those it extends. Its connection is not used. */
  preset?: GraphileConfig.Preset | undefined;
  /**
   * What Graphile Worker and this package log with.
   * @default one that says nothing
   */
  logger?: Logger | undefined;
}

/** A run of a job. */
export interface RanJob {
  /** The job's id in Graphile Worker. */
  readonly id: string;
  /** The task's identifier. */
  readonly task: string;
  readonly payload: unknown;
  /** Which run of the job it was: 1 for the first. */
  readonly attempt: number;
  /** What the task threw. Null: it succeeded. */
  readonly error: unknown;
}

const OPTIONS = ["pgPool", "taskList", "policies", "preset", "logger"];

/**
 * Admits what the policies let go now, runs it by Graphile Worker's `runTaskListOnce`, releases it, and goes on until nothing
 * is left to do. Returns the runs, in their order. It runs one job at a time, and also due jobs without a policy.
 *
 * A job that fails is in the result with its error, and nothing is thrown. What has to wait (a throttle, a hold, a retry)
 * stays for a later call: advance the {@link virtualClock} first.
 *
 * @throws {ArgumentError} if an option is unknown, or it gets both `policies` and `preset`, or neither
 * @throws {Error} if no job can be fetched, for example because a schema is missing. `cause` is what the database said
 * @example
 * const ran = await runDueJobs({ pgPool: pool, policies: [fetchEndpoint], taskList: { fetch_endpoint: async () => {} } });
 * console.log(ran.map(({ task, payload, error }) => [task, payload, error]));
 */
export async function runDueJobs(options: RunDueJobsOptions): Promise<RanJob[]> {
  checkOptions("runDueJobs", options, OPTIONS);
  const { pgPool, taskList, logger = new Logger(() => () => {}) } = options;
  const { events, ran, errors } = makeRecord();
  const shared = { preset: presetOf(options), pgPool, logger };
  const client = await pgPool.connect();
  try {
    const once = { ...shared, events, noHandleSignals: true } as RunOnceOptions;
    await runTaskListOnce(once, taskList, client).promise;
  } finally {
    client.release();
  }
  if (errors.length > 0) throw cannotFetch(errors[0] as Error);
  return ran;
}

/** What happens, by Graphile Worker's events. If it cannot fetch a job, its run just ends, as if there were none. */
function makeRecord() {
  const ran: RanJob[] = [];
  const errors: unknown[] = [];
  const events = new EventEmitter();
  const ended = ({ job, error = null }: { job: Job; error?: unknown }) => {
    if (job.task_identifier !== TICK_TASK) ran.push(ranJob(job, error));
  };
  events.on("job:success", ended);
  events.on("job:error", ended);
  events.on("worker:getJob:error", ({ error }: { error: unknown }) => errors.push(error));
  return { events, ran, errors };
}

/** @throws {ArgumentError} if there are both policies and a preset, or neither */
function presetOf({ policies, preset }: RunDueJobsOptions): GraphileConfig.Preset {
  if ((policies === undefined) === (preset === undefined))
    throw new ArgumentError(
      `runDueJobs: give either "policies" or "preset", got ${policies ? "both" : show(preset)}`,
    );
  return preset ?? { extends: [WorkerPreset, dispatchPolicyPreset({ policies: policies ?? [] })] };
}

function ranJob({ id, task_identifier, payload, attempts }: Job, error: unknown): RanJob {
  return { id: String(id), task: task_identifier, payload, attempt: attempts, error };
}

function cannotFetch(cause: Error): Error {
  return new Error(
    `runDueJobs: jobs cannot be fetched: ${cause.message}. If a schema is missing, call makePolicyUtils first, which makes both`,
    { cause },
  );
}
