import type { Until } from "../policy/policy.ts";
import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, endOf, type PartitionTarget, type Why } from "./targets.ts";

/**
 * Stops a partition until a time, say after a 429. It always ends by itself.
 *
 * @example await utils.hold({ policy: "fetch_endpoint", partition: "ep1", forMs: 30_000, reason: "429" });
 */
export async function hold(
  context: OperateContext,
  options: PartitionTarget & Until & Why,
): Promise<Changed> {
  checkVerb("hold", options, { needs: ["policy", "partition"], takes: ["until", "forMs", "reason", "by"] });
  const { policy, partition, reason, by } = options;
  return call<Changed>(context, "hold", { policy, partition, ...endOf("hold", options), reason, by });
}
