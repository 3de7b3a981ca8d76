// Reads a job that a worker has fetched.
import type { Job } from "graphile-worker";
import type { Attempt } from "../db/engine.ts";
import { RESERVED_FLAG } from "../policy/policy.ts";
import { timeOf } from "../timestamp.ts";

/**
 * A flag that an admission sets on a job: `dispatch_policy:<staged id>@<admission>#<partition mark>`. A job with a key has
 * `.<key mark>.<microseconds>` after it, and a traced job without a key two dots in their place. A traced job then has
 * `.<trace context>.<staged>[.<due>]`.
 */
export interface Ticket {
  readonly stagedId: string;
  /** The time of the admission's transaction, in microseconds since 1970. */
  readonly admission: string;
  /** The first eight digits of the id of its partition. Null: the flag has none. */
  readonly mark: string | null;
}

const TICKET = /^(\d+)@(\d+)(?:$|#(?:([0-9a-f]{8})(?:$|\.))?)/;

/** A job's ticket. Null: it was added past its policy. */
export function ticketOf(job: Job): Ticket | null {
  const found = TICKET.exec(ownFlagOf(job));
  if (!found) return null;
  return { stagedId: found[1] as string, admission: found[2] as string, mark: found[3] ?? null };
}

/** What an admission's flag says, or an empty text. */
function ownFlagOf({ flags }: Job): string {
  for (const flag in flags) if (flag.startsWith(RESERVED_FLAG)) return flag.slice(RESERVED_FLAG.length);
  return "";
}

/** The trace context with which a job was staged, and its times. */
export interface Trace {
  /** In W3C's form. */
  readonly traceparent: string;
  readonly stagedAt: Date;
  /** When it was due, if that was later. */
  readonly dueAt: Date | null;
}

const TRACE =
  /^[^.]*\.[^.]*\.[^.]*\.(00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})\.(\d{1,18})(?:\.(\d{1,18}))?$/;

/** A job's trace. Null: nobody traced its producer, its context has another form, or it was added past its policy. */
export function traceOf(job: Job): Trace | null {
  const [, traceparent, staged, due] = TRACE.exec(ownFlagOf(job)) ?? [];
  if (traceparent === undefined) return null;
  return { traceparent, stagedAt: timeIn(staged), dueAt: due === undefined ? null : timeIn(due) };
}

function timeIn(microseconds: string | undefined): Date {
  return new Date(Number(microseconds) / 1000);
}

/**
 * Whether the row is unchanged since the admission. The job has not run, and was neither rescheduled nor replaced under
 * its key. Each would change `updated_at`. A flag that was copied to another job fails this test.
 *
 * Times are compared in milliseconds, because a Date has no microseconds.
 */
export function isAsAdmitted(job: Job, ticket: Ticket): boolean {
  const updatedAt = timeOf(job.updated_at);
  if (updatedAt === null || job.attempts !== 1 || job.last_error !== null) return false;
  return Math.abs(updatedAt - Number(ticket.admission) / 1000) < 1;
}

/** The run of a job, and its worker pool. */
export function attemptOf(job: Job): Attempt {
  const lockedAt = timeOf(job.locked_at);
  return {
    ...{ jobId: String(job.id), revision: job.revision, attempt: job.attempts, poolId: job.locked_by },
    lockedAt: lockedAt === null ? null : new Date(lockedAt),
  };
}

/** The options that a job was added with, as far as the row still has them. */
export function specificationOf(job: Job) {
  const flags = Object.keys(job.flags ?? {}).filter((flag) => !flag.startsWith(RESERVED_FLAG));
  return {
    task: job.task_identifier,
    priority: job.priority,
    ...(job.key === null ? {} : { jobKey: job.key }),
    ...(flags.length === 0 ? {} : { flags }),
  };
}
