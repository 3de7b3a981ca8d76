// What a job that a worker fetched tells of itself.
import type { Job } from "graphile-worker";
import type { Attempt } from "./db/engine.ts";
import { RESERVED_FLAG } from "./policy.ts";

/** Null: it was added past its policy. */
export function stagedIdOf(job: Job): string | null {
  const flag = Object.keys(job.flags ?? {}).find((one) => one.startsWith(RESERVED_FLAG));
  return flag ? flag.slice(RESERVED_FLAG.length) : null;
}

/** Which run of the job this is, and by which worker pool. */
export function attemptOf(job: Job): Attempt {
  return { jobId: job.id, attempt: job.attempts, poolId: job.locked_by };
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
