import { optional } from "../checks/options.ts";
import { parameter } from "../db/engine.ts";
import type { JobGroup } from "../stage/group.ts";
import type { OperateContext } from "./call.ts";
import { anId, checkVerb } from "./verb.ts";
import { rowsOf } from "./view-rows.ts";

/** A job group whose callback has not been added yet: a row of the view `groups`. */
export interface OpenGroup extends JobGroup {
  /** The task of the callback. */
  callback: string;
  /** The policy of that task; null: it has none. */
  policy: string | null;
  /** When its jobs were added. */
  createdAt: Date;
  /** How many have not ended for good. */
  jobsLeft: number;
  /** Why the callback could not be added; the next sweep tries again. Null: it was not tried. */
  error: string | null;
  /** The job that was added first of those that are left, by its `id` in {@link GroupJob}; null: none is left. */
  oldestJobId: string | null;
  /** A page of the jobs that are left. Only if the group was asked for by `group`. */
  jobs?: readonly GroupJob[];
}

/** A job of an open group that has not ended for good: a row of the view `group_jobs`. */
export interface GroupJob {
  /** The id that it has in staging; of one that Graphile Worker has past its policy, that one's. */
  id: string;
  /** Graphile Worker's id; null: it is not there, or nobody knows. */
  jobId: string | null;
  /** Null: it has ended where nobody saw it, and the next sweep counts it. */
  state: "staged" | "parked" | "ready" | "running" | "failed" | null;
  taskIdentifier: string | null;
  policy: string | null;
  partition: string | null;
  /** When it is due; null: it waits for nothing but a repair. */
  runAt: Date | null;
  attempts: number;
  lastError: string | null;
}

/** Selects job groups, or the jobs of one. */
export interface GroupsQuery {
  /** Only the group with this id, and its `jobs`. Default: all open groups, without their jobs. */
  group?: string | undefined;
  /** Only ids after this one, the last of the page before: ids of groups, or with `group` of its jobs. */
  after?: string | undefined;
  /** How many groups at most, or with `group` how many of its jobs. A whole number from 1. Default 100. */
  limit?: number | undefined;
}

const AFTER = parameter(1, "id");
const GROUPS = `where ${AFTER} is null or id > ${AFTER} order by id limit ${parameter(2, "int")}`;
const GROUP = `where id = ${parameter(1, "id")}`;
const [OF, BEHIND] = [parameter(1, "id"), parameter(2, "id")];
const JOBS = `where group_id = ${OF} and (${BEHIND} is null or id > ${BEHIND}) order by id limit ${parameter(3, "int")}`;

/** Documented at {@link Operate.groups}. */
export async function groups(
  context: OperateContext,
  query: GroupsQuery = {},
): Promise<readonly OpenGroup[]> {
  checkVerb("groups", query, { takes: ["group", "after", "limit"] });
  optional("groups: after", query.after, anId);
  const { group, after = null, limit = 100 } = query;
  if (group === undefined) return rowsOf<OpenGroup>(context, "groups", GROUPS, [after, limit]);
  const [found] = await rowsOf<OpenGroup>(context, "groups", GROUP, [group]);
  if (found === undefined) return [];
  const jobs = await rowsOf<GroupJob & { groupId?: string }>(context, "group_jobs", JOBS, [
    group,
    after,
    limit,
  ]);
  return [{ ...found, jobs: jobs.map(({ groupId: _, ...job }) => job) }];
}
