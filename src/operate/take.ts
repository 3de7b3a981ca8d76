import { call, type OperateContext } from "./call.ts";
import { checkVerb, type LimiterTarget } from "./targets.ts";

/** Documented at {@link Operate.take}. */
export async function take(context: OperateContext, options: LimiterTarget & { cost?: number | undefined }) {
  checkVerb("take", options, { needs: ["policy", "gate"], takes: ["key", "cost"] });
  const row = await call<{ taken: boolean; retry_at: Date | null }>(context, "take", { ...options });
  return { taken: row.taken, retryAt: row.retry_at };
}
