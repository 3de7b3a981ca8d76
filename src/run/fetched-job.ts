// What a job that a worker fetched tells of itself.
import type { Job } from "graphile-worker";
import type { Attempt } from "../db/engine.ts";
import { RESERVED_FLAG } from "../policy/policy.ts";
import { timeOf } from "../timestamp.ts";

/** What an admission writes on a job: `dispatch_policy:<staged id>@<admission>#<mark of its partition>`. */
export interface Ticket {
  readonly stagedId: string;
  /** The time of the admission's transaction, in microseconds since 1970. */
  readonly admission: string;
  /** The beginning of the id of the partition it was admitted in; null: an earlier release admitted it. */
  readonly mark: string | null;
}

const TICKET = /^(\d+)@(\d+)(?:$|#([0-9a-f]{8}$)?)/;

/** Null: it was added past its policy. */
export function ticketOf(job: Job): Ticket | null {
  const flag = Object.keys(job.flags ?? {}).find((one) => one.startsWith(RESERVED_FLAG));
  const [, stagedId, admission, mark = null] = TICKET.exec(flag?.slice(RESERVED_FLAG.length) ?? "") ?? [];
  return stagedId === undefined || admission === undefined ? null : { stagedId, admission, mark };
}

/**
 * Whether the row says that nothing has happened to the job since it was admitted: it has not run, and it was neither
 * rescheduled nor replaced under its key, each of which moves `updated_at`. A flag that was copied to another job fails
 * the same test. A date has milliseconds only, the ticket microseconds.
 */
export function isAsAdmitted(job: Job, ticket: Ticket): boolean {
  const updatedAt = timeOf(job.updated_at);
  if (updatedAt === null || job.attempts !== 1 || job.last_error !== null) return false;
  return Math.abs(updatedAt - Number(ticket.admission) / 1000) < 1;
}

/** Which run of the job this is, and by which worker pool. */
export function attemptOf(job: Job): Attempt {
  return { jobId: String(job.id), revision: job.revision, attempt: job.attempts, poolId: job.locked_by };
}

/** What the job was added with, as far as it still tells. */
export function specificationOf(job: Job) {
  const flags = Object.keys(job.flags ?? {}).filter((flag) => !flag.startsWith(RESERVED_FLAG));
  return {
    task: job.task_identifier,
    priority: job.priority,
    ...(job.key === null ? {} : { jobKey: job.key }),
    ...(flags.length === 0 ? {} : { flags }),
  };
}
