import { ArgumentError } from "../errors.ts";
import { actOf, aimOf, call, type OperateContext, told } from "./call.ts";
import { releaseMarked } from "./sweep.ts";
import { type Changed, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

/** The options of `cancel`: jobs by their ids, or those of a policy or a partition. Neither is an {@link ArgumentError}. */
export type CancelOptions = (
  | {
      /** Graphile Worker's ids, or staged ones. */
      ids: readonly string[];
    }
  | PolicyTarget
) &
  Why & {
    /** Counts the jobs, and cancels none. Default false. */
    dryRun?: boolean | undefined;
  };

/** The result of `cancel`. */
export interface Cancelled extends Changed {
  /** How many of them run, and have been told to end. With `dryRun`: how many run. */
  running: number;
}

/** Documented at {@link Operate.cancel}. */
export async function cancel(context: OperateContext, options: CancelOptions): Promise<Cancelled> {
  checkVerb("cancel", options, { takes: ["ids", "policy", "partition", "reason", "by", "dryRun"] });
  const { ids, policy, partition, reason, by, dryRun } = options as {
    ids?: readonly string[];
  } & Partial<PolicyTarget> &
    Why & { dryRun?: boolean | undefined };
  if (ids === undefined && policy === undefined)
    throw new ArgumentError("cancel: expected { ids } or { policy, partition? }, got neither");
  const args = { ids, policy, partition, reason, by, dry_run: dryRun };
  const cancelled = await call<Cancelled>(context, "cancel", args);
  if (dryRun) return cancelled;
  const { running } = cancelled;
  told(context, "dispatchPolicy:cancel", { ...aimOf(options), running, ...actOf(cancelled, options) });
  // In a transaction of its own, because it locks limiters. The jobs are cancelled whatever becomes of it: an operator's role
  // may not do it, and then a sweep gives the slots back.
  await releaseMarked(context).catch(() => {});
  return cancelled;
}
