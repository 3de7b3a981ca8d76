import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** Documented at {@link Operate.disable} and {@link Operate.enable}. */
export async function switchPolicy(
  context: OperateContext,
  options: { policy: string; enabled: boolean } & Why,
): Promise<Changed> {
  checkVerb(options.enabled ? "enable" : "disable", options, {
    needs: ["policy", "enabled"],
    takes: ["reason", "by"],
  });
  return call<Changed>(context, "switch_policy", { ...options });
}
