import type { Job, JobHelpers, Task, TaskList } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import type { EventSink } from "../events.ts";
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
import { attemptOf, isAsAdmitted, specificationOf, ticketOf } from "./fetched-job.ts";
import { RetryAfter } from "./retry-after.ts";
import { catchUnadmitted } from "./unadmitted.ts";

/** How long after its fetch a job's row says what is so. */
const BELIEVED_FOR_MS = 1000;
const WRAPPED = Symbol("wrapped by graphile-worker-dispatch-policy");

/** What the wrapper learned of a running job, for its release. */
export interface RunningJob {
  readonly policy: AnyPolicy;
  /** Of the slot it holds. */
  readonly admission: string;
  /** Null: not known, because the attempt before was cut short or the job was let in at its start. */
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
  const { job, withPgClient } = helpers;
  const start = await startOf(policy, helpers, observer);
  const { admission, mark = null } = start;
  const scopeOf: ScopeOf = (gate) => withPgClient((client) => observer.engine.scopeOf(client, job.id, gate));
  const partition =
    start.partition ??
    (await admittedPartition(policy, job, mark, async () => (await scopeOf(null))?.partition));
  const own = describe(policy, helpers, { ...start, partition }, scopeOf, observer);
  const lagMs = start.resumed ? null : own.lagMs;
  const running = admission === null ? null : { policy, admission, lagMs, startedAt: performance.now() };
  if (running) observer.started(job, running);
  if (start.runs) helpers.dispatchPolicy = own;
  const outcome = start.runs ? await runTask(task, payload, helpers, own) : { result: undefined };
  if (running) await observer.returned?.(job, running, helpers, outcome);
  if ("error" in outcome) throw outcome.error;
  return outcome.result;
}

/** Where the running job belongs, and with a gate the scope key it counts under there. */
type ScopeOf = (gate: string | null) => ReturnType<Engine["scopeOf"]>;

/** How a job comes to start. */
interface Start {
  /** False: it is not to run here and now, and completes. */
  readonly runs: boolean;
  readonly stagedId: string | null;
  /** Of the slot it holds; null: none, because its policy is switched off or it does not run. */
  readonly admission: string | null;
  /** When a tick admitted it, if that is not the admission that has its slot by now: see {@link HeldSlot}. */
  readonly admitted?: string;
  /** Where it was looked up: a retry may have been moved. */
  readonly partition?: string | undefined;
  /** Of the partition it was admitted in, where that was not looked up. */
  readonly mark?: string | null;
  /** By a tick; false: let in at its start. */
  readonly byTick: boolean;
  /** The attempt before was cut short, and how long this one has waited is not known. */
  readonly resumed?: boolean;
}

/**
 * A first attempt that is as it was admitted costs no query. One that was fetched some time ago is asked about: its slot
 * may have been given back meanwhile by hand. So is each of a policy with a `slotTimeout`, which counts from the start that
 * is noted here: nobody here knows how long the answer to a fetch was under way.
 */
async function startOf(policy: AnyPolicy, helpers: JobHelpers, observer: Observer): Promise<Start> {
  const { job, withPgClient } = helpers;
  const { engine, events } = observer;
  const ticket = ticketOf(job);
  const isFresh = observer.waitedLocally(job) < BELIEVED_FOR_MS;
  const isBelieved = isFresh && policyDefinition(policy).slotTimeoutSeconds === null;
  if (ticket && isBelieved && isAsAdmitted(job, ticket)) return { runs: true, byTick: true, ...ticket };
  const held = await withPgClient((client) => engine.startAttempt(client, attemptOf(job)));
  if (held) return { runs: true, byTick: true, ...held };
  if (!ticket) observer.unadmitted(job, policy, helpers);
  const { verdict, stagedId, admission } = await catchUnadmitted(policy, job, helpers, { engine, events });
  const runs = verdict === "admitted" || verdict === "ungoverned";
  return { runs, byTick: false, stagedId, admission };
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
 * no query of its own. Fetching wrote `locked_at`. Null where the application's pg makes something of these times that nobody
 * can read.
 */
function lagOf(job: Job, admittedAtMs: number, observer: Observer): number | null {
  const behind = observer.clockBehindMs(job);
  const [runAt, lockedAt] = [job.run_at, job.locked_at].map(timeOf);
  if (runAt == null) return null;
  // admission set it for the clock that is furthest behind
  const readyAt = Math.max(runAt + Math.max(behind, 0), admittedAtMs);
  if (job.locked_at === null) return observer.waitedLocally(job);
  if (lockedAt == null) return null;
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
  const context = { withPgClient, engine: observer.engine };
  return {
    policy: policy.identifier,
    get partition() {
      return partition ?? resolveJob(policy, job.payload, specificationOf(job)).partition;
    },
    stagedId: stagedId ?? "",
    attempt: job.attempts,
    admittedAt: admittedAtMs === null ? null : new Date(admittedAtMs),
    lagMs: admittedAtMs === null ? null : lagOf(job, admittedAtMs, observer),
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

/** Makes helpers, which Graphile Worker makes for each job, stage the jobs of tasks that have a policy. */
function makePolicyAware(helpers: JobHelpers, { engine, registry }: Observer): void {
  const adder = makeAdder(engine, registry, helpers.withPgClient);
  helpers.addJob = adder.addJob as JobHelpers["addJob"];
  helpers.addJobs = adder.addJobs as JobHelpers["addJobs"];
}
