import { setTimeout as delay } from "node:timers/promises";
import { ArgumentError } from "../errors.ts";
import { actOf, aimOf, call, type OperateContext, told } from "./call.ts";
import { IDLE_SLEEP_MS, IDLE_STEPS } from "./steps.ts";
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

/** A result of the SQL function. */
interface Step extends Cancelled {
  readonly more: boolean;
  readonly last_id: string | null;
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
  const { more, last_id, ...total } = await call<Step>(context, "cancel", args);
  if (dryRun) return total;
  await finish(context, options, total);
  for (let goesOn = more, after = last_id, idle = 0; goesOn && idle < IDLE_STEPS; ) {
    const step: Step = await call<Step>(context, "cancel", { ...args, after });
    goesOn = step.more || after !== null; // the last one is one from the beginning
    after = step.last_id;
    if (step.changed > 0) {
      // what runs matched in the first step
      total.matched += step.changed;
      total.changed += step.changed;
      total.running += step.running;
      await finish(context, options, step);
      idle = 0;
    } else if (step.more) {
      idle++;
      await delay(IDLE_SLEEP_MS);
    }
  }
  return total;
}

/** Says what a step did, and frees slots. */
async function finish(context: OperateContext, options: CancelOptions, step: Cancelled): Promise<void> {
  const { running } = step;
  told(context, "dispatchPolicy:cancel", { ...aimOf(options), running, ...actOf(step, options) });
  // In a transaction of its own, because it locks limiters. The jobs are cancelled whatever becomes of it: an operator's role
  // may not do it, and then a sweep frees the slots.
  await releaseMarked(context).catch(() => {});
}
