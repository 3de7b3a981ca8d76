import type { Job, Logger } from "graphile-worker";
import type { FinishedJob, Move, Retry } from "../db/engine.ts";
import { type EventSink, emit } from "../events.ts";
import {
  type AnyPolicy,
  policyDefinition,
  type ResolvedBackoff,
  resolveBackoff,
  resolveJob,
} from "../policy/policy.ts";
import { specificationOf } from "./fetched-job.ts";
import { RetryAfter } from "./retry-after.ts";
import type { RunningJob } from "./wrap-task.ts";

/** What the release of a job that ended needs to know; `error` null: it succeeded. */
export function finishedJob(
  job: Job,
  ended: RunningJob & { error: unknown },
  context: { logger: Logger; events: EventSink },
): FinishedJob {
  const failed = ended.error != null;
  const byWork = policyDefinition(ended.policy).fairBy === "work";
  const again = job.attempts < job.max_attempts || givesBack(ended);
  return {
    job: String(job.id), // an application may have pg read a bigint as a BigInt, which JSON refuses
    admission: ended.admission,
    ok: !failed,
    lagMs: ended.lagMs,
    durationMs: byWork ? performance.now() - ended.startedAt : undefined,
    attempt: job.attempts,
    retry: failed && again ? retryOf(job, ended, context) : null,
  };
}

/** Whether this run is not to count as an attempt. */
function givesBack({ policy, error }: { policy: AnyPolicy; error: unknown }): boolean {
  return error instanceof RetryAfter && policyDefinition(policy).giveBackAttempt;
}

/** How the job is tried again; null leaves it to Graphile Worker. */
function retryOf(
  job: Job,
  { policy, error }: { policy: AnyPolicy; error: unknown },
  { logger, events }: { logger: Logger; events: EventSink },
): Retry | null {
  const { backoff, move } = backoffOf(policy, error, job, logger);
  if (backoff === false) {
    emit(events, "dispatchPolicy:giveUp", {
      policy: policy.identifier,
      jobId: String(job.id),
      attempt: job.attempts,
    });
    return { attempt: job.attempts, giveUp: true };
  }
  if (policyDefinition(policy).retries === "bypass") {
    return backoff ? { attempt: job.attempts, native: true, after: backoff.afterMs / 1000 } : null;
  }
  return {
    attempt: job.attempts,
    task: job.task_identifier,
    after: backoff ? backoff.afterMs / 1000 : Math.exp(Math.min(job.attempts, 10)),
    priority: backoff?.priority ?? job.priority,
    maxAttempts: job.max_attempts,
    ...(givesBack({ policy, error }) && { giveBack: true, jobKey: job.key }),
    move,
  };
}

interface Answer {
  readonly backoff: ResolvedBackoff | false | null;
  readonly move?: Move;
}

/** A back-off that throws is the policy's mistake, not the job's: it is retried as Graphile Worker would. */
function backoffOf(policy: AnyPolicy, error: unknown, job: Job, logger: Logger): Answer {
  if (error instanceof RetryAfter) {
    return { backoff: { afterMs: Math.max(error.until.getTime() - Date.now(), 0) } };
  }
  try {
    const backoff = resolveBackoff(policy, error, job.attempts, job);
    const partition = backoff ? backoff.partition : undefined;
    return partition === undefined ? { backoff } : { backoff, move: movedTo(partition, policy, job) };
  } catch (mistake) {
    logger.error(`Job ${job.id}: ${(mistake as Error).message}; using Graphile Worker's own back-off`, {
      error: mistake,
    });
    return { backoff: null };
  }
}

/** The retry goes on in another partition, under that partition's limits; under the job's own where that one is new. */
function movedTo(partition: string, policy: AnyPolicy, job: Job): Move {
  const resolved = resolveJob(policy, job.payload, specificationOf(job));
  const { shard, context, weight, cost, limits } = resolved;
  return { key: partition, shard, context, weight, cost, limits };
}
