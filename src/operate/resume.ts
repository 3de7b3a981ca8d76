import { actOf, aimOf, callOrCount, type OperateContext, told } from "./call.ts";
import {
  type Changed,
  checkTarget,
  checkVerb,
  type DryRun,
  type Reach,
  type Target,
  type Why,
} from "./targets.ts";

/** Documented at {@link Operate.resume}. */
export async function resume(
  context: OperateContext,
  options: Target & Why & DryRun,
): Promise<Changed & Reach> {
  checkVerb("resume", options, { takes: ["policy", "partition", "all", "reason", "by", "dryRun"] });
  checkTarget("resume", options);
  const { dryRun, ...rest } = options;
  const resumed = await callOrCount<Changed>(context, "resume", { ...rest, dry_run: dryRun });
  if (!dryRun) told(context, "dispatchPolicy:resume", { ...aimOf(options), ...actOf(resumed, options) });
  return resumed;
}
