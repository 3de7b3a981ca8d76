import type { Job } from "graphile-worker";
import type { StagedRow } from "../db/engine.ts";

/** A Graphile Worker Job in every field, so that code written for addJob's result keeps working. */
export interface StagedJob extends Job {
  staged: true;
  /**
   * There only where nothing was staged, and `id` is null: the policy's backlog is full and drops the newest, or (with
   * `unsafe_dedupe`) a job outside the policy has the job key.
   */
  dropped?: true;
  policy: string;
  /** Null while only a process that has the policy can tell. */
  partition: string | null;
  shard: string | null;
}
/** A job that was passed on to Graphile Worker: its task has no policy, or the policy is switched off. */
export interface PlainJob extends Job {
  staged: false;
}
export type AddedJob = StagedJob | PlainJob;

/** What Graphile Worker's addJob returns, with an honest value in every field. */
export function toJob(row: StagedRow, payload: unknown): AddedJob {
  if (!row.staged) {
    return {
      ...(row.job as unknown as Job),
      ...datesOf(row),
      payload: row.job?.payload ?? payload ?? {}, // not told where the policy is switched off
      task_identifier: row.task_identifier,
      staged: false,
    };
  }
  return {
    id: row.id as string,
    job_queue_id: null,
    task_id: null as unknown as number, // Graphile Worker's own number for the task: not known before admission
    payload: payload ?? {},
    priority: row.priority,
    run_at: row.run_at,
    attempts: 0,
    max_attempts: row.max_attempts,
    last_error: null,
    created_at: row.created_at,
    updated_at: row.created_at,
    key: row.job_key,
    revision: 0,
    locked_at: null,
    locked_by: null,
    flags: row.flags === null ? null : Object.fromEntries(row.flags.map((flag) => [flag, true as const])),
    is_available: true,
    task_identifier: row.task_identifier,
    staged: true,
    policy: row.policy as string,
    partition: row.partition,
    shard: row.shard,
    ...(row.id === null && { dropped: true }),
  };
}

/** JSON carried the passed-on job's timestamps as text. */
function datesOf(row: StagedRow): Partial<Job> {
  const date = (key: string) => {
    const value = row.job?.[key];
    return value == null ? null : new Date(String(value));
  };
  return {
    id: row.id as string,
    run_at: row.run_at,
    created_at: row.created_at,
    updated_at: date("updated_at") as Date,
    locked_at: date("locked_at"),
  };
}
