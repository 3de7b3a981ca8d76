import type { Job, JobHelpers, Task, TaskList, WithPgClient } from "graphile-worker";
import { makeAdder } from "./adder.ts";
import type { Engine } from "./db/engine.ts";
import { type AnyPolicy, type DispatchPolicyHelpers, policyDefinition, resolveJob } from "./policy.ts";
import type { Registry } from "./registry.ts";
import { RetryAfter } from "./retry-after.ts";

/** The flag that carries a job's staged id through Graphile Worker. */
const FLAG = "dispatch_policy:";
const WRAPPED = Symbol("wrapped by graphile-worker-dispatch-policy");

/** What the wrapper learned of a running job, for its release. */
export interface RunningJob {
  readonly policy: AnyPolicy;
  /** Null: not known, since the attempt before was cut short. */
  readonly lagMs: number | null;
}

export type Outcome = { readonly result: Awaited<ReturnType<Task>> } | { readonly error: unknown };

/** How the wrapper tells what it saw; the preset and wrapTaskList do it each in their way. */
export interface Observer {
  readonly engine: Engine;
  readonly registry: Registry;
  /** When a job was fetched ahead of its start (localQueue), how long it has waited here since, in milliseconds. */
  waitedLocally(job: Job): number;
  /** A job of a policy is about to run. */
  started(job: Job, running: RunningJob): void;
  /** Its task returned or threw; awaited before the host hears of it. */
  returned?(job: Job, running: RunningJob, helpers: JobHelpers, outcome: Outcome): Promise<void>;
  /** A job of a policy's task starts that was never admitted. */
  unadmitted(job: Job, policy: AnyPolicy, helpers: JobHelpers): void;
}

/** Gives the observer of a running job; undefined leaves the job alone. */
export type ObserverOf = (helpers: JobHelpers) => Observer | undefined;

/** Wraps every task of a list in place, once. */
export function wrapTasks(tasks: TaskList, observerOf: ObserverOf): void {
  for (const [identifier, task] of Object.entries(tasks)) {
    if (task) tasks[identifier] = wrapTask(identifier, task as Task, observerOf);
  }
}

/** A task that is to be left as it is. */
export function unwrapped(task: Task): Task {
  return Object.assign(task, { [WRAPPED]: true });
}

export function isWrapped(task: object): boolean {
  return WRAPPED in task;
}

/** The task with policy-aware helpers and, where a policy governs it, its start and end observed. */
function wrapTask(identifier: string, task: Task, observerOf: ObserverOf): Task {
  if (isWrapped(task)) return task;
  return unwrapped((payload, helpers) => {
    const observer = observerOf(helpers);
    if (!observer) return task(payload as never, helpers);
    makePolicyAware(helpers, observer);
    const policy = observer.registry.ofTask(identifier);
    return policy ? runGoverned(policy, task, payload, helpers, observer) : task(payload as never, helpers);
  });
}

async function runGoverned(
  policy: AnyPolicy,
  task: Task,
  payload: unknown,
  helpers: JobHelpers,
  observer: Observer,
): Promise<Awaited<ReturnType<Task>>> {
  const { job } = helpers;
  const stagedId = stagedIdOf(job);
  const later = stagedId !== null && job.attempts > 1;
  const slot = later ? await takeUpSlot(policy, job, stagedId, helpers, observer.engine) : undefined;
  const own = describe(policy, job, stagedId, slot?.partition, helpers.withPgClient, observer);
  helpers.dispatchPolicy = own;
  const running: RunningJob = { policy, lagMs: slot?.resumed ? null : own.lagMs };
  if (stagedId === null) observer.unadmitted(job, policy, helpers);
  else observer.started(job, running);
  const outcome = await runTask(task, payload, helpers, own);
  if (stagedId !== null) await observer.returned?.(job, running, helpers, outcome);
  if ("error" in outcome) throw outcome.error;
  return outcome.result;
}

async function runTask(
  task: Task,
  payload: unknown,
  helpers: JobHelpers,
  own: DispatchPolicyHelpers,
): Promise<Outcome> {
  try {
    return { result: await task(payload as never, helpers) };
  } catch (error) {
    if (error instanceof RetryAfter) await holdFor(error, own, helpers);
    return { error };
  }
}

/** The task's own error is what the host is to hear of, also when the partition cannot be held. */
async function holdFor(retry: RetryAfter, own: DispatchPolicyHelpers, helpers: JobHelpers): Promise<void> {
  try {
    await own.hold(retry);
  } catch (error) {
    helpers.logger.warn(
      `Could not hold the partition of job ${helpers.job.id}: ${(error as Error).message}`,
      { error },
    );
  }
}

/**
 * A later attempt goes on under the slot its job holds, whichever partition it was moved to. One that holds none (it
 * bypasses the gates, or its slot was given back while it hung) takes one past the gates, so that it counts while it runs.
 */
async function takeUpSlot(
  policy: AnyPolicy,
  job: Job,
  stagedId: string,
  { withPgClient, logger }: JobHelpers,
  engine: Engine,
): Promise<{ partition: string; resumed: boolean } | undefined> {
  const attempt = { jobId: job.id, attempt: job.attempts, poolId: job.locked_by };
  const held = await withPgClient((client) => engine.startAttempt(client, attempt));
  if (held) return held;
  try {
    const { partition, cost } = resolveJob(policy, job.payload, { task: job.task_identifier });
    const slot = { ...attempt, policy: policy.identifier, partition, stagedId, cost };
    await withPgClient((client) => engine.holdSlot(client, slot));
  } catch (error) {
    if (policyDefinition(policy).retries === "bypass") throw error;
    logger.warn(`Job ${job.id} runs without a slot: ${(error as Error).message}`, { error });
  }
  return undefined;
}

export function stagedIdOf(job: Job): string | null {
  const flag = Object.keys(job.flags ?? {}).find((one) => one.startsWith(FLAG));
  return flag ? flag.slice(FLAG.length) : null;
}

/**
 * The wait in Graphile Worker: from admission (or `run_at`, if later) to the start, both by the database's clock, with
 * no query of its own. Admission wrote `created_at`, a retry's admission `run_at`; fetching wrote `locked_at`.
 */
function lagOf(job: Job, observer: Observer): number {
  const readyAt = Math.max(job.run_at.getTime(), job.created_at.getTime());
  const lockedAt = job.locked_at?.getTime() ?? readyAt;
  return Math.max(0, lockedAt - readyAt) + observer.waitedLocally(job);
}

function describe(
  policy: AnyPolicy,
  job: Job,
  stagedId: string | null,
  partition: string | undefined,
  withPgClient: WithPgClient,
  observer: Observer,
): DispatchPolicyHelpers {
  const { engine } = observer;
  const scopeOf = (gate: string | null) => withPgClient((client) => engine.scopeOf(client, job.id, gate));
  return {
    policy: policy.identifier,
    get partition() {
      return partition ?? resolveJob(policy, job.payload, { task: job.task_identifier }).partition;
    },
    stagedId: stagedId ?? "",
    attempt: job.attempts,
    admittedAt: stagedId === null ? null : new Date(Math.max(job.created_at.getTime(), retriedAt(job))),
    lagMs: stagedId === null ? null : lagOf(job, observer),
    async hold(options) {
      const until = "until" in options ? options.until : new Date(Date.now() + options.forMs);
      const where = (await scopeOf(null))?.partition ?? this.partition;
      await withPgClient((client) =>
        engine.call(client, "hold", {
          policy: policy.identifier,
          partition: where,
          until,
          reason: options.reason,
          by: `job ${job.id}`,
        }),
      );
    },
    async take({ gate, key, cost }) {
      const scope = key ?? (await scopeOf(gate))?.scope_key ?? undefined;
      const [row] = await withPgClient((client) =>
        engine.call<{ taken: boolean; retry_at: Date | null }>(client, "take", {
          policy: policy.identifier,
          gate,
          key: scope,
          cost,
        }),
      );
      return { taken: row?.taken ?? false, retryAt: row?.retry_at ?? null };
    },
  };
}

/** A retry's admission set run_at; a first attempt's run_at is the caller's. */
function retriedAt(job: Job): number {
  return job.attempts > 1 ? job.run_at.getTime() : 0;
}

/** Makes helpers, which Graphile Worker makes for each job, stage the jobs of tasks that have a policy. */
function makePolicyAware(helpers: JobHelpers, { engine, registry }: Observer): void {
  const adder = makeAdder(engine, registry, helpers.withPgClient);
  helpers.addJob = adder.addJob as JobHelpers["addJob"];
  helpers.addJobs = adder.addJobs as JobHelpers["addJobs"];
}
