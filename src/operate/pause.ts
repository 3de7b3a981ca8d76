import { actOf, aimOf, call, type OperateContext, told } from "./call.ts";
import { checkTarget, checkVerb, type Stored, type Target, type Why } from "./targets.ts";

/** The options of `pause`: every policy, a policy or one of its partitions. */
export type PauseOptions = Target &
  Why & {
    /** When the pause ends; a past time is an {@link ArgumentError}. Default: it lasts until `resume`. */
    until?: Date | undefined;
  };

/** Documented at {@link Operate.pause}. */
export async function pause(context: OperateContext, options: PauseOptions): Promise<Stored> {
  checkVerb("pause", options, { takes: ["policy", "partition", "all", "until", "reason", "by"] });
  checkTarget("pause", options);
  const paused = await call<Stored>(context, "pause", { ...options });
  const { until = null } = options;
  told(context, "dispatchPolicy:pause", { ...aimOf(options), until, ...actOf(paused, options) });
  return paused;
}
