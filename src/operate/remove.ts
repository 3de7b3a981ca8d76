import { ArgumentError } from "../errors.ts";
import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

export type RemoveOptions = ({ ids: readonly string[] } | { jobKey: string } | PolicyTarget) &
  Why & {
    /** Counts, and removes nothing. Default false. */
    dryRun?: boolean;
  };

/** Documented at {@link Operate.remove}. */
export async function remove(context: OperateContext, options: RemoveOptions): Promise<Changed> {
  checkVerb("remove", options, { takes: ["ids", "jobKey", "policy", "partition", "reason", "by", "dryRun"] });
  const { ids, jobKey, policy, partition, reason, by, dryRun } = options as {
    ids?: readonly string[];
    jobKey?: string;
  } & Partial<PolicyTarget> &
    Why & { dryRun?: boolean };
  if (ids === undefined && jobKey === undefined && policy === undefined) {
    throw new ArgumentError(
      "remove: expected { ids }, { jobKey } or { policy, partition? }, got none of them",
    );
  }
  return call<Changed>(context, "remove", {
    ids,
    job_key: jobKey,
    policy,
    partition,
    reason,
    by,
    dry_run: dryRun,
  });
}
