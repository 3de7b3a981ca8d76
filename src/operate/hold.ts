import type { Until } from "../policy/policy.ts";
import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, endOf, type PartitionTarget, type Why } from "./targets.ts";

/** Documented at {@link Operate.hold}. */
export async function hold(
  context: OperateContext,
  options: PartitionTarget & Until & Why,
): Promise<Changed> {
  checkVerb("hold", options, { needs: ["policy", "partition"], takes: ["until", "forMs", "reason", "by"] });
  const { policy, partition, reason, by } = options;
  return call<Changed>(context, "hold", { policy, partition, ...endOf("hold", options), reason, by });
}
