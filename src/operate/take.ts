import { call, type OperateContext } from "./call.ts";
import { checkVerb, type LimiterTarget } from "./targets.ts";

/**
 * Draws from a throttle for code outside jobs. Never waits: without enough tokens, or while another transaction keeps the
 * throttle locked, it takes none and says when to ask again.
 *
 * @example const { taken, retryAt } = await utils.take({ policy: "fetch_endpoint", gate: "all" });
 */
export async function take(context: OperateContext, options: LimiterTarget & { cost?: number | undefined }) {
  checkVerb("take", options, { needs: ["policy", "gate"], takes: ["key", "cost"] });
  const row = await call<{ taken: boolean; retry_at: Date | null }>(context, "take", { ...options });
  return { taken: row.taken, retryAt: row.retry_at };
}
