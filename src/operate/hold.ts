import type { Until } from "../policy/policy.ts";
import { actOf, callOrCount, type OperateContext, told } from "./call.ts";
import {
  checkVerb,
  type DryRun,
  endOf,
  type HoldTarget,
  type Reach,
  type Stored,
  type Why,
} from "./targets.ts";

/** Documented at {@link Operate.hold}. */
export async function hold(
  context: OperateContext,
  options: HoldTarget & Until & Why & DryRun,
): Promise<Stored & Reach> {
  const isOfKey = options.gate !== undefined;
  checkVerb("hold", options, {
    needs: ["policy", isOfKey ? "gate" : "partition"],
    takes: [...(isOfKey ? (["key"] as const) : []), "until", "forMs", "reason", "by", "dryRun"],
  });
  const { policy, partition, gate, key, reason, by, dryRun } = options;
  const { until = null, forMs = null } = options;
  const args = { policy, partition, gate, key, ...endOf("hold", options), reason, by, dry_run: dryRun };
  const result = await callOrCount<Stored>(context, "hold", args);
  const target = { policy, partition: partition ?? null, gate: gate ?? null, key: key ?? null };
  if (!dryRun) told(context, "dispatchPolicy:hold", { ...target, until, forMs, ...actOf(result, options) });
  return result;
}
