// Reads a job that a worker has fetched.
import type { Job } from "graphile-worker";
import type { Attempt } from "../db/engine.ts";
import { RESERVED_FLAG } from "../policy/policy.ts";
import { timeOf } from "../timestamp.ts";

/** A flag that an admission sets on a job: `dispatch_policy:<staged id>@<admission>#<partition mark>[.<key mark>.<microseconds>]`. */
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
  const flag = Object.keys(job.flags ?? {}).find((one) => one.startsWith(RESERVED_FLAG));
  const [, stagedId, admission, mark = null] = TICKET.exec(flag?.slice(RESERVED_FLAG.length) ?? "") ?? [];
  return stagedId === undefined || admission === undefined ? null : { stagedId, admission, mark };
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
  return { jobId: String(job.id), revision: job.revision, attempt: job.attempts, poolId: job.locked_by };
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
