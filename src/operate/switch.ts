import { actOf, call, type OperateContext, told } from "./call.ts";
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
  const switched = await call<Changed>(context, "switch_policy", { ...options });
  const { policy, enabled } = options;
  told(context, "dispatchPolicy:switch", { policy, enabled, ...actOf(switched, options) });
  return switched;
}
