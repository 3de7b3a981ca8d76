import { call, type OperateContext } from "./call.ts";
import { type Changed, checkTarget, checkVerb, type Target, type Why } from "./targets.ts";

/** The options of `pause`: every policy, a policy or one of its partitions. */
export type PauseOptions = Target &
  Why & {
    /** When the pause ends; a past time is an {@link ArgumentError}. Default: it lasts until `resume`. */
    until?: Date | undefined;
  };

/** Documented at {@link Operate.pause}. */
export async function pause(context: OperateContext, options: PauseOptions): Promise<Changed> {
  checkVerb("pause", options, { takes: ["policy", "partition", "all", "until", "reason", "by"] });
  checkTarget("pause", options);
  return call<Changed>(context, "pause", { ...options });
}
