import { hash } from "node:crypto";
import type { Job } from "graphile-worker";
import { type AnyPolicy, resolveJob } from "../policy/policy.ts";
import { specificationOf } from "./fetched-job.ts";

/**
 * The partition in which a job was admitted. Undefined if its ticket has no partition mark.
 *
 * The policy's functions may give another partition now. SQL may have named one, functions may read more than the payload,
 * or they may be of a later release. So the result is compared with the mark. Only if it differs, the partition is looked
 * up.
 */
export function admittedPartition(
  policy: AnyPolicy,
  job: Job,
  mark: string | null,
  lookUp: () => Promise<string | undefined>,
): string | undefined | Promise<string | undefined> {
  if (mark === null) return undefined;
  const key = workedOut(policy, job);
  if (key !== undefined && partitionMark(policy.identifier, key) === mark) return key;
  return lookUp().then((found) => found ?? key);
}

function workedOut(policy: AnyPolicy, job: Job): string | undefined {
  try {
    return resolveJob(policy, job.payload, specificationOf(job)).partition;
  } catch {
    return undefined;
  }
}

/**
 * The beginning of the id that `_partition_id` makes in SQL. The rule stands twice because each start compares the mark, and
 * must not cost a query. `test/features/partition.test.ts` compares both. In a database that is not in UTF-8 the marks may
 * differ; then the partition is looked up.
 */
export function partitionMark(policy: string, key: string): string {
  const marks = marksOf(policy);
  const known = marks.get(key);
  if (known !== undefined) return known;
  const mark = hash("md5", `${[...policy].length}:${policy}${key}`, "hex").slice(0, 8);
  if (marks.size >= MOST_MARKS) marks.clear();
  marks.set(key, mark);
  return mark;
}

/** To work out a mark took 2 % of a busy worker's time, and the next jobs are mostly of the same partitions. */
const MOST_MARKS = 1000;
const marksByPolicy = new Map<string, Map<string, string>>();

function marksOf(policy: string): Map<string, string> {
  const marks = marksByPolicy.get(policy) ?? new Map<string, string>();
  marksByPolicy.set(policy, marks);
  return marks;
}
