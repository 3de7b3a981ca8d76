import { call, type OperateContext } from "./call.ts";
import { type Changed, checkTarget, checkVerb, type Target, type Why } from "./targets.ts";

/** Documented at {@link Operate.resume}. */
export async function resume(context: OperateContext, options: Target & Why): Promise<Changed> {
  checkVerb("resume", options, { takes: ["policy", "partition", "all", "reason", "by"] });
  checkTarget("resume", options);
  return call<Changed>(context, "resume", { ...options });
}
