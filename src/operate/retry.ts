import { ArgumentError } from "../errors.ts";
import { actOf, aimOf, call, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

/**
 * The options of `retry`: failed jobs by their ids, or those of a policy or a partition. Neither is an
 * {@link ArgumentError}. If several options select jobs, a job must match all.
 */
export type RetryOptions = (
  | {
      /** Graphile Worker's ids, or the ones that the jobs had in staging. */
      ids: readonly string[];
    }
  | PolicyTarget
) &
  Why & {
    /** Only jobs that failed for good at this time or later. Default: whenever they failed. */
    since?: Date | undefined;
    /** Only jobs that failed for good before. Default: the time of the call. */
    until?: Date | undefined;
    /** Only jobs whose last error contains this text. Default: whatever it says. */
    error?: string | undefined;
    /** Counts the jobs, and brings none back. Default false. */
    dryRun?: boolean | undefined;
  };

/** How many jobs one transaction brings back. */
const STEP = 1000;

/** Documented at {@link Operate.retry}. */
export async function retry(context: OperateContext, options: RetryOptions): Promise<Changed> {
  const takes = ["ids", "policy", "partition", "since", "until", "error", "reason", "by", "dryRun"] as const;
  checkVerb("retry", options, { takes });
  const { ids, policy, dryRun, ...rest } = options as Partial<PolicyTarget> &
    Omit<RetryOptions, "ids"> & { ids?: readonly string[] };
  if (ids === undefined && policy === undefined)
    throw new ArgumentError("retry: expected { ids } or { policy, partition? }, got neither");
  const args = { ids, policy, ...rest, dry_run: dryRun };
  const retryStep = async (count: number) => {
    const step = await call<Changed>(context, "retry", { ...args, count });
    if (!dryRun) told(context, "dispatchPolicy:retry", { ...aimOf(options), ...actOf(step, options) });
    return step;
  };
  const { matched, changed } = await retryStep(STEP);
  const total = { matched, changed };
  // never more than had failed at first: a job may fail again meanwhile
  while (!dryRun && total.changed < matched) {
    const step = await retryStep(Math.min(STEP, matched - total.changed));
    if (step.changed === 0) break; // the others are locked, or gone
    total.changed += step.changed;
  }
  return total;
}
