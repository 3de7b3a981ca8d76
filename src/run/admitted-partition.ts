import { hash } from "node:crypto";
import type { Job } from "graphile-worker";
import { type AnyPolicy, resolveJob } from "../policy/policy.ts";
import { specificationOf } from "./fetched-job.ts";

/**
 * The partition a job was admitted in. Worked out anew it may be another: SQL may have named one, and functions may read
 * more than the payload, or be those of a later release. So it is compared with the mark on the job's ticket, and looked up
 * only where it differs. Undefined where there is no mark.
 */
export async function admittedPartition(
  policy: AnyPolicy,
  job: Job,
  mark: string | null,
  lookUp: () => Promise<string | undefined>,
): Promise<string | undefined> {
  if (mark === null) return undefined;
  const key = workedOut(policy, job);
  if (key !== undefined && partitionMark(policy.identifier, key) === mark) return key;
  return (await lookUp()) ?? key;
}

function workedOut(policy: AnyPolicy, job: Job): string | undefined {
  try {
    return resolveJob(policy, job.payload, specificationOf(job)).partition;
  } catch {
    return undefined;
  }
}

/** As `_partition_id` in SQL makes the id, in a database in UTF-8; in any other the partition is looked up. */
export function partitionMark(policy: string, key: string): string {
  return hash("md5", `${[...policy].length}:${policy}${key}`, "hex").slice(0, 8);
}
