import type { Job } from "graphile-worker";
import { storableText } from "../checks/options.ts";
import type { FinishedJob, Move, Retry } from "../db/engine.ts";
import { errorText } from "../error-text.ts";
import { DispatchPolicyError, RunTimeoutError } from "../errors.ts";
import { type EventSink, emit } from "../events.ts";
import type { Logger } from "../log.ts";
import {
  type AnyPolicy,
  policyDefinition,
  type ResolvedBackoff,
  resolveBackoff,
  resolveJob,
} from "../policy/policy.ts";
import { BatchError } from "./batch-parts.ts";
import { specificationOf } from "./fetched-job.ts";
import { isOfOwnDatabase } from "./own-database.ts";
import { retryAfterIn } from "./retry-after.ts";
import type { RunningJob } from "./running-jobs.ts";
import { StillRunsError, UncountedRunError } from "./uncounted.ts";

/** Describes a job that ended, for its release. `hostsError` is null if it succeeded. */
export function finishedJob(
  job: Job,
  running: RunningJob,
  hostsError: unknown,
  context: { logger: Logger; events: EventSink },
): FinishedJob {
  const error = running.failed ?? hostsError;
  if (!running.ownsSlot) return replacedJob(job, running.admission);
  const { policy } = running;
  const failed = error != null;
  const uncounted = failed && isUncounted(running, error);
  const again = failed && (job.attempts < job.max_attempts || refunds(policy, error));
  return {
    job: String(job.id), // the application's pg may read a bigint as a BigInt, which JSON refuses
    admission: running.admission,
    ok: !failed,
    ...(failed && (uncounted || saysNothing(error)) && { saysNothing: true }),
    lagMs: running.lagMs,
    task: job.task_identifier,
    durationMs: performance.now() - running.startedAt,
    attempt: job.attempts,
    ...(running.settlement.settled && { settled: running.settlement.settled }),
    ...(isRemembered(job, running, failed) && { stagedId: running.stagedId as string }),
    ...(failed && policyDefinition(policy).history && { error: firstLineOf(error) }),
    retry: uncounted ? uncountedRetry(job, policy) : again ? retryOf(job, running, error, context) : null,
  };
}

/**
 * Whether the worker's shutdown has ended the run. What a run throws after it was told to end, it mostly throws because of
 * that. But with `RetryAfter` the task itself says when it is tried again.
 */
function isUncounted({ signal }: RunningJob, error: unknown): boolean {
  if (signal.cancelled || retryAfterIn(error)) return false;
  return signal.stopped || isOf(UncountedRunError, error);
}

/**
 * Whether a failure says nothing of the partner: it opens no breaker, shrinks no adaptive limit and fails no probe. It may be
 * the cause of another error. Of an AggregateError, as of a batch, each must say nothing. A proxy may throw when it is asked.
 */
function saysNothing(error: unknown): boolean {
  try {
    return isSilent(error, []);
  } catch {
    return false;
  }
}

function isSilent(error: unknown, within: readonly unknown[]): boolean {
  if (error instanceof RunTimeoutError) return false;
  if (error instanceof DispatchPolicyError || isOfOwnDatabase(error)) return true;
  if (!(error instanceof Error) || within.includes(error)) return false;
  const wrapped: unknown[] =
    error instanceof AggregateError && error.errors.length > 0 ? error.errors : [error.cause];
  return wrapped.every((inner) => isSilent(inner, [...within, error]));
}

/** A proxy may throw when it is asked what it is: it is none. */
function isOf<E extends Error>(kind: new (...args: never[]) => E, thrown: unknown): thrown is E {
  try {
    return thrown instanceof kind;
  } catch {
    return false;
  }
}

/** Whether `uniqueFor` remembers the job's key. Its slot may be gone by then, and with it the id that the key names. */
function isRemembered(job: Job, { policy, stagedId }: RunningJob, failed: boolean): boolean {
  const { uniqueForSeconds } = policyDefinition(policy);
  return !failed && uniqueForSeconds !== null && job.key !== null && stagedId !== null;
}

/** The most characters of an error that the history keeps. */
const LONGEST_ERROR = 1000;

/** As Graphile Worker reads the error, which is recording it at the same time. */
function firstLineOf(error: unknown): string {
  return storableText((errorText(error).split("\n")[0] as string).slice(0, LONGEST_ERROR));
}

/** Describes a job with a slot that another one has replaced in its row. Nobody sees the end of the replaced one. */
export function replacedJob(job: Job, admission: string): FinishedJob {
  return { job: String(job.id), admission, ok: null, lagMs: null, attempt: null, retry: null };
}

/**
 * Describes a job whose task did not run, although Graphile Worker counts an attempt. It has spent no tokens. Perhaps only an
 * answer was lost, so whichever admission has its slot frees it, unless the attempt before still runs.
 */
export function unstartedJob(job: Job, policy: AnyPolicy | undefined, error: UncountedRunError): FinishedJob {
  const stillRuns = error instanceof StillRunsError;
  return {
    ...{
      job: String(job.id),
      admission: stillRuns ? NOBODYS : null,
      ok: null,
      lagMs: null,
      attempt: job.attempts,
    },
    settled: { cost: 0 },
    retry: uncountedRetry(job, stillRuns ? undefined : policy),
  };
}

/** An admission that owns no slot. */
const NOBODYS = "0";

/** Another worker may have the job at once. This one, if it could not ask the database, leaves it a moment. */
const UNCOUNTED_AFTER_S = 3;

/** The retry of a run that is no attempt. Without a policy, or past its gates, Graphile Worker has it. */
function uncountedRetry(job: Job, policy: AnyPolicy | undefined): Retry {
  const { id: _, task_identifier: task, priority, max_attempts: maxAttempts } = job;
  const { attempts: attempt, revision, key: jobKey } = job;
  const again = { attempt, revision, jobKey, refund: true, after: UNCOUNTED_AFTER_S } as const;
  return policy && policyDefinition(policy).retries === "restage"
    ? { ...again, task, priority, maxAttempts }
    : { ...again, native: true };
}

/** Whether this run does not count as an attempt. Of a batch, each part that failed must have said so. */
function refunds(policy: AnyPolicy, error: unknown): boolean {
  if (!policyDefinition(policy).refundAttempt) return false;
  return isOf(BatchError, error) ? error.errors.every(retryAfterIn) : retryAfterIn(error) !== undefined;
}

/** How a failed job is tried again. Null leaves it to Graphile Worker. */
function retryOf(
  job: Job,
  { policy, signal }: RunningJob,
  error: unknown,
  { logger, events }: { logger: Logger; events: EventSink },
): Retry | null {
  const failed = { attempt: job.attempts, revision: job.revision };
  if (signal.cancelled) return { ...failed, giveUp: true };
  const { backoff, move } = backoffOf(policy, error, job, logger);
  if (backoff === false) {
    emit(events, "dispatchPolicy:giveUp", {
      policy: policy.identifier,
      jobId: String(job.id),
      attempt: job.attempts,
    });
    return { ...failed, giveUp: true };
  }
  if (policyDefinition(policy).retries === "bypass") {
    return backoff ? { ...failed, native: true, after: backoff.afterMs / 1000 } : null;
  }
  return {
    ...failed,
    task: job.task_identifier,
    after: backoff ? backoff.afterMs / 1000 : Math.exp(Math.min(job.attempts, 10)),
    priority: backoff?.priority ?? job.priority,
    maxAttempts: job.max_attempts,
    ...(refunds(policy, error) && { refund: true, jobKey: job.key }),
    move,
  };
}

interface Answer {
  readonly backoff: ResolvedBackoff | false | null;
  readonly move?: Move;
}

/** If the back-off throws, the policy is wrong, not the job. The job is retried as Graphile Worker would do it. */
function backoffOf(policy: AnyPolicy, error: unknown, job: Job, logger: Logger): Answer {
  const retryAfter = retryAfterIn(error);
  if (retryAfter) {
    return { backoff: { afterMs: Math.max(retryAfter.until.getTime() - Date.now(), 0) } };
  }
  try {
    const backoff = resolveBackoff(policy, error, job.attempts, job);
    const partition = backoff ? backoff.partition : undefined;
    return partition === undefined ? { backoff } : { backoff, move: movedTo(partition, policy, job) };
  } catch (mistake) {
    logger.error(`Job ${job.id}: ${errorText(mistake)}; using Graphile Worker's own back-off`, {
      error: mistake,
    });
    return { backoff: null };
  }
}

/** Moves the retry to another partition. If that partition is new, it gets the job's limits. */
function movedTo(partition: string, policy: AnyPolicy, job: Job): Move {
  const resolved = resolveJob(policy, job.payload, specificationOf(job));
  const { lane, shard, context, weight, cost, limits } = resolved;
  return { key: partition, lane, shard, context, weight, cost, limits };
}
