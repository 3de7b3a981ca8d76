import { call, type OperateContext } from "./call.ts";
import { type Changed, checkTarget, checkVerb, type Target, type Why } from "./targets.ts";

export type PauseOptions = Target & Why & { until?: Date | undefined };

/** Documented at {@link Operate.pause}. */
export async function pause(context: OperateContext, options: PauseOptions): Promise<Changed> {
  checkVerb("pause", options, { takes: ["policy", "partition", "all", "until", "reason", "by"] });
  checkTarget("pause", options);
  return call<Changed>(context, "pause", { ...options });
}
