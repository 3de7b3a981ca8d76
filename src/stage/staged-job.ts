import type { Job } from "graphile-worker";
import type { StagedRow } from "../db/engine.ts";

/** A staged job. It has every field of Graphile Worker's Job, so that code for addJob's result keeps working. */
export interface StagedJob extends Job {
  staged: true;
  /**
   * True if nothing was staged. `id` is null if the policy's backlog is full and drops the newest. It is also null, with
   * `unsafe_dedupe`, if a job outside the policy has the job key. With `uniqueFor`, `id` is that of the earlier job.
   */
  dropped?: true;
  /** True if it went in this call: Graphile Worker has it, and nothing waits in staging. */
  admitted?: true;
  /** The name of its policy. */
  policy: string;
  /** Its partition's key; null until a process that has the policy works it out. */
  partition: string | null;
  /** Its partition's shard; null as `partition`. */
  shard: string | null;
  /** The group's number, if it was added with `then`. */
  groupId?: string;
}
/** A job that was passed on to Graphile Worker: its task has no policy, or the policy is switched off. */
export interface PlainJob extends Job {
  staged: false;
}
/** A job that was added: `staged` says which of the two it is. */
export type AddedJob = StagedJob | PlainJob;

/** The result of Graphile Worker's addJob, with a true value in every field but `task_id`: a staged job has none. */
export function toJob(row: StagedRow, payload: unknown): AddedJob {
  if (!row.staged) {
    return {
      ...(row.job as unknown as Job),
      ...datesOf(row),
      payload: row.job?.payload ?? payload ?? {}, // SQL does not return it if the policy is switched off
      task_identifier: row.task_identifier,
      staged: false,
    };
  }
  return {
    id: row.id as string,
    job_queue_id: null,
    task_id: null as unknown as number, // Graphile Worker's own number for the task, unknown before admission
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
    ...((row.id === null || row.job !== null) && { dropped: true }),
    ...(row.admitted && { admitted: true }),
    ...(row.group_id != null && { groupId: row.group_id }),
  };
}

/** The timestamps of a job that was passed on. JSON has them as texts. */
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
