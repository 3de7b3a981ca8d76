import type { Until } from "../policy/policy.ts";
import { actOf, call, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, endOf, type PartitionTarget, type Why } from "./targets.ts";

/** Documented at {@link Operate.hold}. */
export async function hold(
  context: OperateContext,
  options: PartitionTarget & Until & Why,
): Promise<Changed> {
  checkVerb("hold", options, { needs: ["policy", "partition"], takes: ["until", "forMs", "reason", "by"] });
  const { policy, partition, reason, by } = options;
  const { until = null, forMs = null } = options;
  const args = { policy, partition, ...endOf("hold", options), reason, by };
  const result = await call<Changed>(context, "hold", args);
  told(context, "dispatchPolicy:hold", { policy, partition, until, forMs, ...actOf(result, options) });
  return result;
}
