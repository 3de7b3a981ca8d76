import type { Job, JobHelpers, Task, TaskList, WithPgClient } from "graphile-worker";
import { makeAdder } from "./adder.ts";
import type { Engine } from "./db/engine.ts";
import type { EventSink } from "./events.ts";
import { attemptOf, specificationOf, stagedIdOf } from "./fetched-job.ts";
import { hold } from "./operate/hold.ts";
import { take } from "./operate/take.ts";
import { type AnyPolicy, type DispatchPolicyHelpers, resolveJob } from "./policy.ts";
import type { Registry } from "./registry.ts";
import { RetryAfter } from "./retry-after.ts";
import { catchUnadmitted } from "./unadmitted.ts";

const WRAPPED = Symbol("wrapped by graphile-worker-dispatch-policy");

/** What the wrapper learned of a running job, for its release. */
export interface RunningJob {
  readonly policy: AnyPolicy;
  /** Null: not known, since the attempt before was cut short. */
  readonly lagMs: number | null;
  /** By `performance.now()`. */
  readonly startedAt: number;
}

export type Outcome = { readonly result: Awaited<ReturnType<Task>> } | { readonly error: unknown };

/** How the wrapper tells what it saw; the preset and wrapTaskList do it each in their way. */
export interface Observer {
  readonly engine: Engine;
  readonly registry: Registry;
  readonly events: EventSink;
  /** When a job was fetched ahead of its start (localQueue), how long it has waited here since, in milliseconds. */
  waitedLocally(job: Job): number;
  /** How far the clock that fetched this job is behind the database's, in milliseconds; 0 unless it is Node's own. */
  clockBehindMs(job: Job): number;
  /**
   * Before a job of any task runs: null, or where this process was away for so long that its jobs may have been given to
   * others, resolves once this one is known to be its own still, and rejects where it is not.
   */
  comeBack(job: Job): Promise<void> | null;
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
    const runs = () =>
      policy ? runGoverned(policy, task, payload, helpers, observer) : task(payload as never, helpers);
    const back = observer.comeBack(helpers.job);
    return back === null ? runs() : back.then(runs);
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
  const admission = await admissionOf(policy, helpers, observer);
  if (admission === null) return;
  const own = describe(policy, job, admission, helpers.withPgClient, observer);
  helpers.dispatchPolicy = own;
  const lagMs = admission.resumed ? null : (own.lagMs ?? 0);
  const running: RunningJob = { policy, lagMs, startedAt: performance.now() };
  const holds = admission.stagedId !== null;
  if (holds) observer.started(job, running);
  const outcome = await runTask(task, payload, helpers, own);
  if (holds) await observer.returned?.(job, running, helpers, outcome);
  if ("error" in outcome) throw outcome.error;
  return outcome.result;
}

/** How a job comes to run. */
interface Admission {
  /** Null: its policy is switched off, and it holds nothing. */
  readonly stagedId: string | null;
  /** Where it was looked up: a retry may have been moved. */
  readonly partition?: string;
  /** By a tick; false: let in at its start. */
  readonly byTick: boolean;
  /** The attempt before was cut short, and how long this one has waited is not known. */
  readonly resumed?: boolean;
}

/** Null when the job is not to run here and now. A first attempt that was admitted costs no query. */
async function admissionOf(
  policy: AnyPolicy,
  helpers: JobHelpers,
  observer: Observer,
): Promise<Admission | null> {
  const { job, withPgClient } = helpers;
  const { engine, events } = observer;
  const stagedId = stagedIdOf(job);
  if (stagedId !== null && job.attempts === 1) return { stagedId, byTick: true };
  const held = await withPgClient((client) => engine.startAttempt(client, attemptOf(job)));
  if (held) return { byTick: true, ...held, stagedId: stagedId ?? held.staged_id };
  if (stagedId === null) observer.unadmitted(job, policy, helpers);
  const caught = await catchUnadmitted(policy, job, helpers, { engine, stagedId, events });
  const runs = caught.verdict === "admitted" || caught.verdict === "ungoverned";
  return !runs ? null : { stagedId: caught.stagedId, byTick: false };
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
    const { forMs, until, reason } = retry;
    await own.hold({ ...(forMs === undefined ? { until } : { forMs }), reason });
  } catch (error) {
    helpers.logger.warn(
      `Could not hold the partition of job ${helpers.job.id}: ${(error as Error).message}`,
      { error },
    );
  }
}

/**
 * The wait in Graphile Worker: from admission (or `run_at`, if later) to the start, both by the database's clock, with
 * no query of its own. Admission wrote `created_at`, a retry's admission `run_at`; fetching wrote `locked_at`.
 */
function lagOf(job: Job, observer: Observer): number {
  const behind = observer.clockBehindMs(job);
  // a number, not a date, where it is infinite; admission set it for the clock that is furthest behind
  const readyAt = Math.max(Number(job.run_at) + Math.max(behind, 0), job.created_at.getTime());
  const lockedAt = job.locked_at === null ? readyAt : job.locked_at.getTime() + behind;
  return Math.max(0, lockedAt - readyAt) + observer.waitedLocally(job);
}

function describe(
  policy: AnyPolicy,
  job: Job,
  { stagedId, partition, byTick }: Admission,
  withPgClient: WithPgClient,
  observer: Observer,
): DispatchPolicyHelpers {
  const { engine } = observer;
  const context = { withPgClient, engine };
  const scopeOf = (gate: string | null) => withPgClient((client) => engine.scopeOf(client, job.id, gate));
  return {
    policy: policy.identifier,
    get partition() {
      return partition ?? resolveJob(policy, job.payload, specificationOf(job)).partition;
    },
    stagedId: stagedId ?? "",
    attempt: job.attempts,
    admittedAt: byTick ? new Date(Math.max(job.created_at.getTime(), retriedAt(job))) : null,
    lagMs: byTick ? lagOf(job, observer) : null,
    async hold(options) {
      const where = (await scopeOf(null))?.partition ?? this.partition;
      await hold(context, { ...options, policy: policy.identifier, partition: where, by: `job ${job.id}` });
    },
    async take(options) {
      const key = options.key ?? (await scopeOf(options.gate))?.scope_key ?? undefined;
      return take(context, { ...options, policy: policy.identifier, key });
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
