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

/** Documented at {@link Operate.cancel}. */
export async function cancel(context: OperateContext, options: CancelOptions): Promise<Changed> {
  checkVerb("cancel", options, { takes: ["ids", "policy", "partition", "reason", "by", "dryRun"] });
  const { ids, policy, partition, reason, by, dryRun } = options as {
    ids?: readonly string[];
  } & Partial<PolicyTarget> &
    Why & { dryRun?: boolean | undefined };
  if (ids === undefined && policy === undefined)
    throw new ArgumentError("cancel: expected { ids } or { policy, partition? }, got neither");
  const args = { ids, policy, partition, reason, by, dry_run: dryRun };
  const cancelled = await call<Changed>(context, "cancel", args);
  if (dryRun) return cancelled;
  told(context, "dispatchPolicy:cancel", { ...aimOf(options), ...actOf(cancelled, options) });
  // In a transaction of its own, because it locks limiters. The jobs are cancelled whatever becomes of it: an operator's role
  // may not do it, and then a sweep gives the slots back.
  await releaseMarked(context).catch(() => {});
  return cancelled;
}
