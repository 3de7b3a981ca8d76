import type { Job, JobHelpers, Task, TaskList } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import { rethrowPlainly } from "../db/rethrow-plainly.ts";
import { ArgumentError, CancelledError } from "../errors.ts";
import { type EventSink, emit } from "../events.ts";
import { ours } from "../log.ts";
import { hold } from "../operate/hold.ts";
import { take } from "../operate/take.ts";
import {
  type AnyPolicy,
  type DispatchPolicyHelpers,
  policyDefinition,
  resolveJob,
} from "../policy/policy.ts";
import type { Registry } from "../policy/registry.ts";
import { makeAdder } from "../stage/adder.ts";
import { timeOf } from "../timestamp.ts";
import { admittedPartition } from "./admitted-partition.ts";
import { batchParts } from "./batch-parts.ts";
import type { Cancellation } from "./cancellations.ts";
import { attemptOf, isAsAdmitted, specificationOf, ticketOf } from "./fetched-job.ts";
import { isRetryAfter, type RetryAfter } from "./retry-after.ts";
import { ownSignal, type RunSignal } from "./run-signal.ts";
import { type Watch, watchRun } from "./run-timeout.ts";
import type { RunningJob } from "./running-jobs.ts";
import { traceRun } from "./trace-run.ts";
import { catchUnadmitted } from "./unadmitted.ts";

/** A fetched row counts as current for this long. Later, the job's slot may have been given back by hand. */
const BELIEVED_FOR_MS = 1000;
const HANDLED = Symbol("handled by graphile-worker-dispatch-policy");

export type Outcome = { readonly result: Awaited<ReturnType<Task>> } | { readonly error: unknown };

/** What the wrapper asks and reports. The preset and wrapTaskList each have their own. */
export interface Observer {
  readonly engine: Engine;
  readonly registry: Registry;
  readonly events: EventSink;
  /** How long a job has waited in this process since its fetch, in milliseconds; 0 without a local queue. */
  waitedLocally(job: Job): number;
  /** How far the clock that fetched this job is behind the database's, in milliseconds; 0 unless it is Node's clock. */
  clockBehindMs(job: Job): number;
  /**
   * Called before a job of any task runs. Null: the job is certainly this pool's. Otherwise the pool was silent for so
   * long that others may have the job. The promise resolves if it is still this pool's, and rejects if not.
   */
  confirm(job: Job): Promise<void> | null;
  /**
   * Called before a job of any task runs, with the policy that governs the task. The promise resolves when the job may
   * run. Null: it may run at once.
   */
  prepare?(policy: AnyPolicy | undefined, helpers: JobHelpers): Promise<void> | null;
  /** A job of a policy is about to run. */
  started(job: Job, running: RunningJob): void;
  /** Its task returned or threw. The host learns that after the promise has resolved. */
  returned?(job: Job, running: RunningJob, helpers: JobHelpers, outcome: Outcome): Promise<void>;
  /** A job starts without an admission, although its task has a policy. */
  unadmitted(job: Job, policy: AnyPolicy, helpers: JobHelpers): void;
}

/** Gives the observer of a running job. Undefined: the job is not observed. */
export type ObserverOf = (helpers: JobHelpers) => Observer | undefined;

/** Wraps every task of a list in place, once. */
export function wrapTasks(tasks: TaskList, observerOf: ObserverOf): void {
  for (const [identifier, task] of Object.entries(tasks)) {
    if (task) tasks[identifier] = wrapTask(identifier, task as Task, observerOf);
  }
}

/** Marks a task that `wrapTasks` leaves alone: it is wrapped, or must not be. */
export function markHandled(task: Task): Task {
  return Object.assign(task, { [HANDLED]: true });
}

/** Whether a task is wrapped, or must not be. */
export function isHandled(task: object): boolean {
  return HANDLED in task;
}

/** The task with helpers that stage jobs. If a policy governs it, its start and its end are observed. */
function wrapTask(identifier: string, task: Task, observerOf: ObserverOf): Task {
  if (isHandled(task)) return task;
  return markHandled((payload, helpers) => {
    const observer = observerOf(helpers);
    if (!observer) return task(payload as never, helpers);
    makePolicyAware(helpers, observer);
    const policy = observer.registry.ofTask(identifier);
    const runs = () =>
      policy ? runGoverned(policy, task, payload, helpers, observer) : task(payload as never, helpers);
    const confirmed = observer.confirm(helpers.job);
    const prepared = observer.prepare?.(policy, helpers) ?? null;
    return confirmed === null && prepared === null ? runs() : Promise.all([confirmed, prepared]).then(runs);
  });
}

async function runGoverned(
  policy: AnyPolicy,
  task: Task,
  payload: unknown,
  helpers: JobHelpers,
  observer: Observer,
): Promise<Awaited<ReturnType<Task>>> {
  const { job, withPgClient } = helpers;
  const start =
    startAsAdmitted(policy, job, observer) ??
    (await startAsRecorded(policy, helpers, observer).catch((error) => {
      rethrowPlainly(error, observer.engine.schemaName);
    }));
  const { admission, mark = null } = start;
  const scopeOf: ScopeOf = (gate) => withPgClient((client) => observer.engine.scopeOf(client, job.id, gate));
  const known =
    start.partition ?? admittedPartition(policy, job, mark, async () => (await scopeOf(null))?.partition);
  const partition = known instanceof Promise ? await known : known;
  const own = describe(policy, helpers, { ...start, partition }, scopeOf, observer);
  const lagMs = start.resumed ? null : own.lagMs;
  const slot = admission === null ? null : { admission, ownsSlot: start.ownsSlot };
  const signal = ownSignal(helpers);
  const cancel = cancelOf(policy, job, signal, observer);
  const running = slot && { policy, ...slot, lagMs, startedAt: performance.now(), signal, cancel };
  if (running) observer.started(job, running);
  if (start.cancelled) cancel(start.cancelled);
  if (start.runs) helpers.dispatchPolicy = own;
  const watch = watchOf(policy, helpers, signal, observer);
  const run = async () =>
    afterCancel(payload, await watch(() => runTask(task, payload, helpers, own)), signal);
  const begin = async (): Promise<Outcome> => {
    if (signal.cancelled) return { error: signal.cancelled };
    return start.runs ? traceRun({ job, own, partition, lagMs }, run) : { result: undefined };
  };
  const outcome = await begin().finally(signal.end);
  if (running && observer.returned) await observer.returned(job, running, helpers, outcome);
  if ("error" in outcome) throw outcome.error;
  return outcome.result;
}

/** Cancels this run. Only the first call counts. */
function cancelOf(
  policy: AnyPolicy,
  job: Job,
  signal: RunSignal,
  { events }: Observer,
): RunningJob["cancel"] {
  return ({ by, reason }) => {
    if (signal.cancelled) return;
    const jobId = String(job.id);
    signal.abort(new CancelledError(jobId, { by, reason }));
    const { attempts: attempt } = job;
    emit(events, "dispatchPolicy:runCancelled", { policy: policy.identifier, jobId, attempt, by, reason });
  };
}

/** How a run ended. If it was cancelled and has failed, it has failed because of that. Parts of a batch keep their errors. */
async function afterCancel(payload: unknown, outcome: Outcome, { cancelled }: RunSignal): Promise<Outcome> {
  const parts = batchParts(payload, outcome);
  if (parts) await Promise.allSettled(parts);
  if (cancelled === undefined || !("error" in outcome) || outcome.error === cancelled) return outcome;
  cancelled.cause ??= outcome.error;
  return { error: cancelled };
}

/** The partition of the running job, and with a gate its scope key there. */
type ScopeOf = (gate: string | null) => ReturnType<Engine["scopeOf"]>;

/** How a job starts. */
interface Start {
  /** False: the task does not run, and the job completes. */
  readonly runs: boolean;
  readonly stagedId: string | null;
  /** The owner of the slot that it occupies. Null: none, because its policy is switched off or it does not run. */
  readonly admission: string | null;
  /** False: it occupies the slot of the job that it replaced. */
  readonly ownsSlot: boolean;
  /** When it was admitted, if another admission owns the slot by now: see `OccupiedSlot`. */
  readonly admitted?: string;
  /** Its partition, if that was looked up, because a retry may have moved, or worked out for a job that was let in. */
  readonly partition?: string | undefined;
  /** The mark of its partition, if that was not looked up. */
  readonly mark?: string | null;
  /** Whether it was admitted before this start. False: it was let in at its start. */
  readonly byTick: boolean;
  /** The attempt before was interrupted, so it is not known how long this one has waited. */
  readonly resumed?: boolean;
  /** An operator has cancelled the job: it must not run. */
  readonly cancelled?: Cancellation | null;
}

/**
 * A first attempt whose row is unchanged costs no query. But the database is asked about a job that was fetched some time
 * ago, because an operator may have given its slot back since.
 *
 * It is also asked about each job of a policy with a `slotTimeout`, to record the start from which the timeout counts. The
 * time of the fetch would not do, because its answer may have been under way for long.
 */
function startAsAdmitted(policy: AnyPolicy, job: Job, observer: Observer): Start | null {
  const ticket = ticketOf(job);
  const isFresh = observer.waitedLocally(job) < BELIEVED_FOR_MS;
  const isBelieved = isFresh && policyDefinition(policy).slotTimeoutSeconds === null;
  if (!ticket || !isBelieved || !isAsAdmitted(job, ticket)) return null;
  const { stagedId, admission, mark } = ticket;
  return { runs: true, ownsSlot: true, byTick: true, stagedId, admission, mark };
}

/** The start of any other job, as the database has it. */
async function startAsRecorded(policy: AnyPolicy, helpers: JobHelpers, observer: Observer): Promise<Start> {
  const { job, withPgClient } = helpers;
  const { engine, events } = observer;
  const slot = await withPgClient((client) => engine.startAttempt(client, attemptOf(job)));
  if (slot) {
    const { cancelledBy: by, cancelReason: reason } = slot;
    return {
      runs: true,
      ownsSlot: true,
      byTick: true,
      ...slot,
      cancelled: by === null ? null : { by, reason },
    };
  }
  const { verdict, stagedId, admission, partition } = await catchUnadmitted(policy, job, helpers, {
    engine,
    events,
  });
  // a policy that is switched off takes every job
  if (ticketOf(job) === null && verdict !== "ungoverned") observer.unadmitted(job, policy, helpers);
  const runs = verdict === "admitted" || verdict === "ungoverned";
  return { runs, ownsSlot: verdict === "admitted", byTick: false, stagedId, admission, partition };
}

/** How a run of a policy with a `runTimeout` is watched. Others are not, and cost nothing. */
function watchOf(policy: AnyPolicy, helpers: JobHelpers, signal: RunSignal, { events }: Observer): Watch {
  const timeoutMs = policy["~policy"].declaration.runTimeoutMs;
  if (timeoutMs === null) return (run) => run();
  const { job } = helpers;
  return watchRun(helpers, signal, timeoutMs, () =>
    emit(events, "dispatchPolicy:runTimeout", {
      policy: policy.identifier,
      jobId: String(job.id),
      attempt: job.attempts,
      timeoutMs,
    }),
  );
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
    if (isRetryAfter(error)) await holdFor(error, own, helpers);
    return { error };
  }
}

/**
 * Holds the partition. If the time has passed already, one job goes first all the same, as after a hold. If that fails, the
 * host still gets the task's own error.
 */
async function holdFor(retry: RetryAfter, own: DispatchPolicyHelpers, helpers: JobHelpers): Promise<void> {
  try {
    const { forMs, until, reason } = retry;
    await own.hold({ ...(forMs === undefined ? { until } : { forMs }), reason }).catch((error) => {
      if (forMs !== undefined || !(error instanceof ArgumentError)) throw error;
      return own.hold({ forMs: 0, reason });
    });
  } catch (error) {
    ours(helpers.logger).warn(
      `Could not hold the partition of job ${helpers.job.id}, so its other jobs go on: ${(error as Error).message}`,
      { error },
    );
  }
}

/**
 * The wait in Graphile Worker, in milliseconds: from admission (or `run_at`, if later) to the start, both by the
 * database's clock. It needs no query, because the fetch wrote `locked_at`. Null if the times cannot be read, because the
 * application has replaced pg's parsers.
 */
function lagOf(job: Job, admittedAtMs: number, observer: Observer): number | null {
  const behind = observer.clockBehindMs(job);
  const runAt = timeOf(job.run_at);
  if (runAt === null) return null;
  // the admission set `run_at` for the clock that is furthest behind
  const readyAt = Math.max(runAt + Math.max(behind, 0), admittedAtMs);
  if (job.locked_at === null) return observer.waitedLocally(job);
  const lockedAt = timeOf(job.locked_at);
  if (lockedAt === null) return null;
  return Math.max(0, lockedAt + behind - readyAt) + observer.waitedLocally(job);
}

function describe(
  policy: AnyPolicy,
  { job, withPgClient }: JobHelpers,
  { stagedId, admission, admitted, partition, byTick }: Start,
  scopeOf: ScopeOf,
  observer: Observer,
): DispatchPolicyHelpers {
  const admittedAtMs = byTick ? Number(admitted ?? admission) / 1000 : null;
  const context = { withPgClient, engine: observer.engine, events: observer.events };
  const own = {
    policy: policy.identifier,
    partition: partition ?? "",
    stagedId: stagedId ?? "",
    attempt: job.attempts,
    admittedAt: admittedAtMs === null ? null : new Date(admittedAtMs),
    lagMs: admittedAtMs === null ? null : lagOf(job, admittedAtMs, observer),
    async hold(options) {
      const { gate, key, ...how } = options;
      const by = `job ${job.id}`;
      if (gate !== undefined) {
        const scope = key ?? ((await scopeOf(gate))?.scope_key || undefined);
        await hold(context, { ...how, policy: policy.identifier, gate, key: scope, by });
        return;
      }
      const where = (await scopeOf(null))?.partition ?? own.partition;
      await hold(context, { ...how, policy: policy.identifier, partition: where, by });
    },
    async take(options) {
      const key = options.key ?? (await scopeOf(options.gate))?.scope_key ?? undefined;
      return take(context, { ...options, policy: policy.identifier, key });
    },
  } satisfies DispatchPolicyHelpers;
  // A getter among the others would cost each job half a microsecond.
  if (partition !== undefined) return own;
  const get = () => resolveJob(policy, job.payload, specificationOf(job)).partition;
  return Object.defineProperty(own, "partition", { get, enumerable: true });
}

/** Changes a job's helpers so that they stage the jobs of tasks with a policy. Each job has helpers of its own. */
function makePolicyAware(helpers: JobHelpers, { engine, registry, events }: Observer): void {
  const adder = makeAdder(engine, registry, helpers.withPgClient, events);
  helpers.addJob = adder.addJob as JobHelpers["addJob"];
  helpers.addJobs = adder.addJobs as JobHelpers["addJobs"];
}
