import { call, type OperateContext } from "./call.ts";
import { type Changed, checkTarget, checkVerb, type Target, type Why } from "./targets.ts";

/**
 * Lifts a pause; of a partition also a hold. A policy's resume leaves pauses of single partitions alone.
 *
 * @example await utils.resume({ policy: "fetch_endpoint", partition: "ep1" });
 */
export async function resume(context: OperateContext, options: Target & Why): Promise<Changed> {
  checkVerb("resume", options, { takes: ["policy", "partition", "all", "reason", "by"] });
  checkTarget("resume", options);
  return call<Changed>(context, "resume", { ...options });
}
