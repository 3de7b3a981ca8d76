import type { Until } from "../policy/policy.ts";
import { actOf, call, type OperateContext, told } from "./call.ts";
import { checkVerb, endOf, type HoldTarget, type Stored, type Why } from "./targets.ts";

/** Documented at {@link Operate.hold}. */
export async function hold(context: OperateContext, options: HoldTarget & Until & Why): Promise<Stored> {
  const isOfKey = options.gate !== undefined;
  checkVerb("hold", options, {
    needs: ["policy", isOfKey ? "gate" : "partition"],
    takes: [...(isOfKey ? (["key"] as const) : []), "until", "forMs", "reason", "by"],
  });
  const { policy, partition, gate, key, reason, by } = options;
  const { until = null, forMs = null } = options;
  const args = { policy, partition, gate, key, ...endOf("hold", options), reason, by };
  const result = await call<Stored>(context, "hold", args);
  const target = { policy, partition: partition ?? null, gate: gate ?? null, key: key ?? null };
  told(context, "dispatchPolicy:hold", { ...target, until, forMs, ...actOf(result, options) });
  return result;
}
