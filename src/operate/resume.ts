import { actOf, aimOf, call, type OperateContext, told } from "./call.ts";
import { type Changed, checkTarget, checkVerb, type Target, type Why } from "./targets.ts";

/** Documented at {@link Operate.resume}. */
export async function resume(context: OperateContext, options: Target & Why): Promise<Changed> {
  checkVerb("resume", options, { takes: ["policy", "partition", "all", "reason", "by"] });
  checkTarget("resume", options);
  const resumed = await call<Changed>(context, "resume", { ...options });
  told(context, "dispatchPolicy:resume", { ...aimOf(options), ...actOf(resumed, options) });
  return resumed;
}
