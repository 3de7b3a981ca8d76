import type { Until } from "../policy/policy.ts";
import { actOf, call, type OperateContext, told } from "./call.ts";
import { checkVerb, endOf, type PartitionTarget, type Stored, type Why } from "./targets.ts";

/** Documented at {@link Operate.hold}. */
export async function hold(context: OperateContext, options: PartitionTarget & Until & Why): Promise<Stored> {
  checkVerb("hold", options, { needs: ["policy", "partition"], takes: ["until", "forMs", "reason", "by"] });
  const { policy, partition, reason, by } = options;
  const { until = null, forMs = null } = options;
  const args = { policy, partition, ...endOf("hold", options), reason, by };
  const result = await call<Stored>(context, "hold", args);
  told(context, "dispatchPolicy:hold", { policy, partition, until, forMs, ...actOf(result, options) });
  return result;
}
