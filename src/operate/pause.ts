import { actOf, aimOf, callOrCount, type OperateContext, told } from "./call.ts";
import {
  checkTarget,
  checkVerb,
  type DryRun,
  type Reach,
  type Stored,
  type Target,
  type Why,
} from "./targets.ts";

/** The options of `pause`: every policy, a policy or one of its partitions. */
export type PauseOptions = Target &
  Why &
  DryRun & {
    /** When the pause ends; a past time is an {@link ArgumentError}. Default: it lasts until `resume`. */
    until?: Date | undefined;
  };

/** Documented at {@link Operate.pause}. */
export async function pause(context: OperateContext, options: PauseOptions): Promise<Stored & Reach> {
  checkVerb("pause", options, { takes: ["policy", "partition", "all", "until", "reason", "by", "dryRun"] });
  checkTarget("pause", options);
  const { dryRun, ...rest } = options;
  const paused = await callOrCount<Stored>(context, "pause", { ...rest, dry_run: dryRun });
  const { until = null } = options;
  if (!dryRun) told(context, "dispatchPolicy:pause", { ...aimOf(options), until, ...actOf(paused, options) });
  return paused;
}
