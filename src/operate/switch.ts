import { actOf, callOrCount, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, type DryRun, type Reach, type Why } from "./targets.ts";

/** Documented at {@link Operate.disable} and {@link Operate.enable}. */
export async function switchPolicy(
  context: OperateContext,
  options: { policy: string; enabled: boolean } & Why & DryRun,
): Promise<Changed & Reach> {
  checkVerb(options.enabled ? "enable" : "disable", options, {
    needs: ["policy", "enabled"],
    takes: ["reason", "by", "dryRun"],
  });
  const { dryRun, ...rest } = options;
  const switched = await callOrCount<Changed>(context, "switch_policy", { ...rest, dry_run: dryRun });
  const { policy, enabled } = options;
  if (!dryRun) told(context, "dispatchPolicy:switch", { policy, enabled, ...actOf(switched, options) });
  return switched;
}
