import { ArgumentError } from "../errors.ts";
import { actOf, aimOf, call, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

/**
 * The options of `remove`: jobs by their ids, by their job key, or those of a policy or a partition. None of these is an
 * {@link ArgumentError}.
 */
export type RemoveOptions = (
  | {
      /**
       * Staged ids. Of failed jobs that wait for their retry, Graphile Worker's ids do as well. Those of admitted jobs match
       * nothing.
       */
      ids: readonly string[];
    }
  | {
      /** The key of the job. */
      jobKey: string;
    }
  | PolicyTarget
) &
  Why & {
    /** Counts the jobs, and removes none. Default false. */
    dryRun?: boolean | undefined;
  };

/** Documented at {@link Operate.remove}. */
export async function remove(context: OperateContext, options: RemoveOptions): Promise<Changed> {
  checkVerb("remove", options, { takes: ["ids", "jobKey", "policy", "partition", "reason", "by", "dryRun"] });
  const { ids, jobKey, policy, partition, reason, by, dryRun } = options as {
    ids?: readonly string[];
    jobKey?: string;
  } & Partial<PolicyTarget> &
    Why & { dryRun?: boolean | undefined };
  if (ids === undefined && jobKey === undefined && policy === undefined) {
    throw new ArgumentError(
      "remove: expected { ids }, { jobKey } or { policy, partition? }, got none of them",
    );
  }
  const removed = await call<Changed>(context, "remove", {
    ids,
    job_key: jobKey,
    policy,
    partition,
    reason,
    by,
    dry_run: dryRun,
  });
  if (!dryRun) told(context, "dispatchPolicy:remove", { ...aimOf(options), ...actOf(removed, options) });
  return removed;
}
