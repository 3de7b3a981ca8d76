import type { Job, JobHelpers, Task, TaskList, WithPgClient } from "graphile-worker";
import { sleep } from "../admit/sleeper.ts";
import type { Engine, Share } from "../db/engine.ts";
import { ArgumentError } from "../errors.ts";
import { type EventSink, emit } from "../events.ts";
import { ours } from "../log.ts";
import { runVerb } from "../operate/verbs.ts";
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
import { type BatchError, batchParts, failureOf } from "./batch-parts.ts";
import { type Cancellation, cancelRun } from "./cancellations.ts";
import { attemptOf, isAsAdmitted, specificationOf, ticketOf } from "./fetched-job.ts";
import { idempotencyKeyOf } from "./idempotency-key.ts";
import { remembering } from "./own-database.ts";
import { recordably } from "./recordable.ts";
import { retryAfterIn } from "./retry-after.ts";
import { RunSignal } from "./run-signal.ts";
import { watchRun } from "./run-timeout.ts";
import type { RunningJob } from "./running-jobs.ts";
import { Settlement } from "./settlement.ts";
import { type TracedRun, traceRun } from "./trace-run.ts";
import { catchUnadmitted } from "./unadmitted.ts";
import { StillRunsError, UncountedRunError, untilAnswered } from "./uncounted.ts";
import { startInShare } from "./worker-share.ts";

/** A fetched row counts as current for this long. Later, the job's slot may have been freed by hand. */
const BELIEVED_FOR_MS = 1000;
const HANDLED = Symbol("handled by graphile-worker-dispatch-policy");

export type Outcome =
  /** `failed`: of a batch, the errors of its parts. */
  | { readonly result: Awaited<ReturnType<Task>>; readonly failed?: BatchError | undefined }
  | { readonly error: unknown };

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
   * Called before a job of any task runs, and again after the last question about it. Null: the job is certainly this pool's.
   * Otherwise the pool was silent for so long that others may have the job. The promise resolves if it is still this
   * pool's, and rejects if not.
   */
  confirm(job: Job): Promise<void> | null;
  /**
   * Called before a job of any task runs, with the policy that governs the task. The promise resolves when the job may
   * run. Null: it may run at once.
   */
  prepare?(policy: AnyPolicy | undefined, helpers: JobHelpers): Promise<void> | null;
  /** A job of a policy is about to run. */
  started(job: Job, running: RunningJob): void;
  /** A promotion has given its row to others: Graphile Worker, which ends jobs by their ids, must not complete it. */
  isDisowned?(job: Job): boolean;
  /** Its task returned or threw. The host learns that after the promise has resolved. */
  returned?(job: Job, running: RunningJob, helpers: JobHelpers, outcome: Outcome): Promise<void>;
  /** Its task did not run, and that is no attempt. Not needed by a host that sees how Graphile Worker's jobs end. */
  uncounted?(job: Job, policy: AnyPolicy, helpers: JobHelpers, error: UncountedRunError): void;
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
      policy
        ? runGoverned(policy, task, payload, helpers, observer).catch((error) => {
            if (error instanceof UncountedRunError) observer.uncounted?.(helpers.job, policy, helpers, error);
            throw error;
          })
        : task(payload as never, helpers);
    const confirmed = observer.confirm(helpers.job);
    const prepared = observer.prepare?.(policy, helpers) ?? null;
    return recordably(payload, () =>
      confirmed === null && prepared === null ? runs() : Promise.all([confirmed, prepared]).then(runs),
    );
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
  const ask = () => startAsRecorded(policy, helpers, observer);
  if (policyDefinition(policy).perWorker) {
    const { start, leave } = await startInShare(ask, policy, helpers, observer);
    return runStarted(start, policy, task, payload, helpers, observer, leave).finally(leave);
  }
  const start = startAsAdmitted(policy, job, observer) ?? (await ask());
  return runStarted(start, policy, task, payload, helpers, observer, () => {});
}

/** `leave` is called when the run has ended, before anybody hears of that: then the next job may come here. */
async function runStarted(
  start: Start,
  policy: AnyPolicy,
  task: Task,
  payload: unknown,
  helpers: JobHelpers,
  observer: Observer,
  leave: () => void,
): Promise<Awaited<ReturnType<Task>>> {
  const { job } = helpers;
  const known = partitionOf(start, policy, helpers, observer);
  const partition = known instanceof Promise ? await known : known;
  // the answers above may have come before a silence, and be read after it
  const doubt = observer.confirm(job);
  if (doubt) await doubt;
  const settlement = new Settlement(policy, job);
  const own = describe(policy, helpers, start, partition, settlement, observer);
  const lagMs = start.resumed ? null : own.lagMs;
  const signal = new RunSignal(helpers);
  const { admission, stagedId, ownsSlot, cancelled } = start;
  const startedAt = performance.now();
  const running: RunningJob | null =
    admission === null
      ? null
      : { policy, admission, stagedId, ownsSlot, lagMs, startedAt, settlement, signal };
  if (running) observer.started(job, running);
  if (running && cancelled) cancelRun(job, running, cancelled, observer.events);
  if (start.runs) helpers.dispatchPolicy = own;
  let outcome: Outcome = { result: undefined };
  try {
    const run = { policy, task, payload, helpers, job, own, partition, lagMs, signal, observer };
    if (signal.cancelled) outcome = { error: signal.cancelled };
    else if (start.runs) outcome = await traceRun(run, runToItsEnd);
  } finally {
    signal.end();
    settlement.end();
    leave();
  }
  if (observer.isDisowned?.(job))
    throw new Error(
      `Job ${job.id} ran across a promotion that has lost its fetch, and it is not this worker's any more: its end is not recorded`,
    );
  if (running && "result" in outcome) running.failed = outcome.failed;
  if (running && observer.returned) await observer.returned(job, running, helpers, outcome);
  if ("error" in outcome) throw outcome.error;
  return outcome.result;
}

/** A job that is about to run, and what its run needs. */
interface Run extends TracedRun {
  readonly policy: AnyPolicy;
  readonly task: Task;
  readonly payload: unknown;
  readonly helpers: JobHelpers;
  readonly signal: RunSignal;
  readonly observer: Observer;
}

/**
 * How the run ended, once its parts have ended as well, if it is of a batch. If it was cancelled and has failed, it has
 * failed because of that. Parts of a batch keep their errors.
 */
async function runToItsEnd(run: Run): Promise<Outcome> {
  const { runTimeoutMs } = run.policy["~policy"].declaration;
  const outcome = await (runTimeoutMs === null ? runTask(run) : runInTime(run, runTimeoutMs));
  const parts = batchParts(run.payload, outcome);
  if (parts && "result" in outcome)
    return { ...outcome, failed: await failureOf(parts, (error) => holdIfAsked(error, run)) };
  const { cancelled } = run.signal;
  if (cancelled === undefined || !("error" in outcome) || outcome.error === cancelled) return outcome;
  cancelled.cause ??= outcome.error;
  return { error: cancelled };
}

/** A run of a policy with a `runTimeout`. */
function runInTime(run: Run, timeoutMs: number): Promise<Outcome> {
  const { policy, helpers, signal, job, observer } = run;
  const watch = watchRun(helpers, signal, timeoutMs, () =>
    emit(observer.events, "dispatchPolicy:runTimeout", {
      policy: policy.identifier,
      jobId: String(job.id),
      attempt: job.attempts,
      timeoutMs,
    }),
  );
  return watch(() => runTask(run));
}

async function runTask(run: Run): Promise<Outcome> {
  const { task, payload, helpers } = run;
  try {
    return { result: await task(payload as never, helpers) };
  } catch (error) {
    await holdIfAsked(error, run);
    return { error };
  }
}

/** The partition of the running job, and with a gate its scope key there. */
function scopeOf({ id }: Job, withPgClient: WithPgClient, { engine }: Observer, gate: string | null) {
  return withPgClient((client) => engine.scopeOf(client, id, gate));
}

/** The running job's scope key at a gate. Undefined: it has none there. */
async function scopeKeyOf(job: Job, withPgClient: WithPgClient, observer: Observer, gate: string) {
  return (await scopeOf(job, withPgClient, observer, gate))?.scope_key ?? undefined;
}

/** The partition of a job that starts. Undefined: nobody has worked it out yet. */
function partitionOf(
  { partition, mark = null }: Start,
  policy: AnyPolicy,
  helpers: JobHelpers,
  observer: Observer,
): string | undefined | Promise<string | undefined> {
  if (partition !== undefined) return partition;
  const { job, withPgClient } = helpers;
  const ask = () => scopeOf(job, withPgClient, observer, null);
  const lookUp = async () => (await untilAnswered(ask, helpers, helpers.abortSignal))?.partition;
  return admittedPartition(policy, job, mark, lookUp);
}

/** A start that waits for the attempt before asks again after this. */
const ASKS_AGAIN_MS = 1000;

/** How a job starts. */
interface Start {
  /** It must not run yet: see `OccupiedSlot`. */
  readonly doubt?: "asked" | "answered" | null;
  /** False: the task does not run, and the job completes. */
  readonly runs: boolean;
  readonly stagedId: string | null;
  /** The owner of the slot that it occupies. Null: none, because its policy is switched off or it does not run. */
  readonly admission: string | null;
  /** False: it occupies the slot of the job that it replaced. */
  readonly ownsSlot: boolean;
  /** When it was admitted, if another admission owns the slot by now: see `OccupiedSlot`. */
  readonly admitted?: string;
  /** Its partition, if that was looked up, because a retry may have moved, or worked out for a job that was admitted at its start. */
  readonly partition?: string | undefined;
  /** The mark of its partition, if that was not looked up. */
  readonly mark?: string | null;
  /** Whether it was admitted before this start. False: it was admitted at its start. */
  readonly byTick: boolean;
  /** The attempt before was interrupted, so it is not known how long this one has waited. */
  readonly resumed?: boolean;
  /** Somebody has cancelled the job: it must not run. */
  readonly cancelled?: Cancellation | null;
  /** What it needs of the share of its worker pool, if its policy has a gate with `perWorker`. */
  readonly shares?: readonly Share[];
}

/**
 * A first attempt whose row is unchanged costs no query. But the database is asked about a job that was fetched some time
 * ago, because an operator may have freed its slot since.
 *
 * It is also asked about each job of a policy with a `slotTimeout`, to record the start from which the timeout counts. The
 * time of the fetch would not do, because its answer may have been under way for long. And it is asked about each job of a
 * policy with shares of worker pools, which does not come here.
 */
function startAsAdmitted(policy: AnyPolicy, job: Job, observer: Observer): Start | null {
  const ticket = ticketOf(job);
  const isFresh = observer.waitedLocally(job) < BELIEVED_FOR_MS;
  const isBelieved = isFresh && policyDefinition(policy).slotTimeoutSeconds === null;
  if (!ticket || !isBelieved || !isAsAdmitted(job, ticket)) return null;
  const { stagedId, admission, mark } = ticket;
  return { runs: true, ownsSlot: true, byTick: true, stagedId, admission, mark };
}

function tellStillRuns({ job, logger }: JobHelpers): void {
  ours(logger).warn(
    `Job ${job.id} was unlocked while another worker runs it, as Graphile Worker does after four hours: attempt ` +
      `${job.attempts} waits for the end of the one before`,
  );
}

/** The start of any other job, as the database has it. */
async function startAsRecorded(policy: AnyPolicy, helpers: JobHelpers, observer: Observer): Promise<Start> {
  // as a whole: if the answer that admitted the job was lost, it has a slot by now
  const ask = (unanswered: number) =>
    untilAnswered(() => recorded(policy, helpers, observer, unanswered), helpers, helpers.abortSignal);
  let start = await ask(0);
  for (let unanswered = 1, said = false; start?.doubt; ) {
    if (start.doubt === "answered" && !said) tellStillRuns(helpers);
    said ||= start.doubt === "answered";
    await sleep(ASKS_AGAIN_MS, helpers.abortSignal);
    if (helpers.abortSignal.aborted) throw new StillRunsError(helpers.job);
    start = await ask(unanswered);
    unanswered = start?.doubt === "answered" ? 1 : unanswered + 1;
  }
  if (start !== null) return start;
  throw new Error(
    `Job ${helpers.job.id} was unlocked before it started, or is another worker's: it will not run here`,
  );
}

/** Null: the job is not this worker's any more. */
async function recorded(
  policy: AnyPolicy,
  helpers: JobHelpers,
  observer: Observer,
  unanswered: number,
): Promise<Start | null> {
  const { job, withPgClient } = helpers;
  const asking = { ticket: ticketOf(job)?.admission ?? null, unanswered };
  const { engine, events } = observer;
  const withShares = policyDefinition(policy).perWorker;
  const slot = await withPgClient((client) =>
    withShares
      ? engine.startAttemptInShare(client, attemptOf(job), asking)
      : engine.startAttempt(client, attemptOf(job), asking),
  );
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
  if (verdict === "reassigned") return null;
  // a policy that is switched off takes every job
  if (ticketOf(job) === null && verdict !== "ungoverned") observer.unadmitted(job, policy, helpers);
  const runs = verdict === "admitted" || verdict === "ungoverned";
  const shares =
    withShares && verdict === "admitted"
      ? await withPgClient((client) => engine.sharesOf(client, String(job.id)))
      : [];
  return { runs, ownsSlot: verdict === "admitted", byTick: false, stagedId, admission, partition, shares };
}

/**
 * Holds the partition if the error says so. If the time has passed already, one job goes first all the same, as after a
 * hold. If that fails, the
 * host still gets the task's own error.
 */
async function holdIfAsked(error: unknown, { own, helpers }: Pick<Run, "own" | "helpers">): Promise<void> {
  const retry = retryAfterIn(error);
  if (retry === undefined) return;
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
  { stagedId, admission, admitted, byTick }: Start,
  partition: string | undefined,
  settlement: Settlement,
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
    idempotencyKey: () => idempotencyKeyOf(job, stagedId),
    async hold(options) {
      const { gate, key, ...how } = options;
      const by = `job ${job.id}`;
      if (gate !== undefined) {
        const scope = key ?? (await scopeKeyOf(job, withPgClient, observer, gate));
        await runVerb(context, "hold", { ...how, policy: policy.identifier, gate, key: scope, by });
        return;
      }
      const where = (await scopeOf(job, withPgClient, observer, null))?.partition ?? own.partition;
      await runVerb(context, "hold", { ...how, policy: policy.identifier, partition: where, by });
    },
    async take(options) {
      const key = options.key ?? (await scopeKeyOf(job, withPgClient, observer, options.gate));
      return runVerb(context, "take", { ...options, policy: policy.identifier, key });
    },
    settle: (options) => settlement.settle(options),
    async sync(options) {
      const key = options.key ?? (await scopeKeyOf(job, withPgClient, observer, options.gate));
      return runVerb(context, "sync", { ...options, policy: policy.identifier, key });
    },
  } satisfies DispatchPolicyHelpers;
  // A getter would keep the run's objects until the next major collection: see decision 020.
  if (partition !== undefined) return own;
  const get = () => resolveJob(policy, job.payload, specificationOf(job)).partition;
  return Object.defineProperty(own, "partition", { get, enumerable: true });
}

/** Changes a job's helpers so that they stage the jobs of tasks with a policy. Each job has helpers of its own. */
function makePolicyAware(helpers: JobHelpers, observer: Observer): void {
  Object.assign(helpers, ownHelpersOf(observer, helpers));
}

type OwnHelpers = Pick<JobHelpers, "withPgClient" | "query" | "addJob" | "addJobs">;
const ownHelpers = new WeakMap<Observer, WeakMap<WithPgClient, OwnHelpers>>();

/** The jobs of a pool share `withPgClient`, so they share these. */
function ownHelpersOf(observer: Observer, helpers: JobHelpers): OwnHelpers {
  const { engine, registry, events } = observer;
  const known = ownHelpers.get(observer) ?? new WeakMap<WithPgClient, OwnHelpers>();
  ownHelpers.set(observer, known);
  const those = known.get(helpers.withPgClient);
  if (those) return those;
  const connected = remembering(helpers);
  const adder = makeAdder(engine, registry, connected.withPgClient, events);
  const own = { ...connected, addJob: adder.addJob, addJobs: adder.addJobs } as OwnHelpers;
  known.set(helpers.withPgClient, own);
  return own;
}
