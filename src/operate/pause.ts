import { call, type OperateContext } from "./call.ts";
import { type Changed, checkTarget, checkVerb, type Target, type Why } from "./targets.ts";

/**
 * Stops a policy, one of its partitions or everything, until resumed or `until`. What is in flight goes on.
 *
 * @example await utils.pause({ policy: "fetch_endpoint", partition: "ep1", reason: "incident 12", by: "ana" });
 */
export async function pause(
  context: OperateContext,
  options: Target & Why & { until?: Date | undefined },
): Promise<Changed> {
  checkVerb("pause", options, { takes: ["policy", "partition", "all", "until", "reason", "by"] });
  checkTarget("pause", options);
  return call<Changed>(context, "pause", { ...options });
}
