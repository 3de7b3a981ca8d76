import { setTimeout as delay } from "node:timers/promises";
import { show } from "../checks/options.ts";
import { isBusy } from "../db/outage.ts";
import { ArgumentError } from "../errors.ts";
import { actOf, call, type OperateContext, told } from "./call.ts";
import { IDLE_SLEEP_MS, IDLE_STEPS } from "./steps.ts";
import { type Changed, checkVerb, type PartitionTarget, type Why } from "./targets.ts";

/** How many jobs one step moves. */
const STEP = 500;

/** The options of `move`. Neither `toPartition` nor `toPolicy` is an {@link ArgumentError}. */
export type MoveOptions = PartitionTarget & {
  /** The key of the partition that gets the jobs. Default: the policy `toPolicy` works it out. */
  toPartition?: string | undefined;
  /** The policy that gets the jobs. Their tasks must be of that policy. Default: the same. */
  toPolicy?: string | undefined;
  /** Only these of the partition's staged jobs, by their staged ids. Default: all. */
  ids?: readonly string[] | undefined;
  /** Counts the jobs, and moves none. Default false. */
  dryRun?: boolean | undefined;
} & Why;

/** Documented at {@link Operate.move}. */
export async function move(context: OperateContext, options: MoveOptions): Promise<Changed> {
  checkVerb("move", options, {
    needs: ["policy", "partition"],
    takes: ["toPartition", "toPolicy", "ids", "dryRun", "reason", "by"],
  });
  const { policy, partition, toPartition, toPolicy, ids, dryRun, reason, by } = options;
  if (toPartition === undefined && toPolicy === undefined)
    throw new ArgumentError(
      `move: expected { toPartition } or { toPolicy }, got toPartition ${show(toPartition)}, toPolicy ${show(toPolicy)}`,
    );
  const target = { policy, partition, to_partition: toPartition, to_policy: toPolicy, ids };
  const { matched } = await call<Changed>(context, "move", { ...target, dry_run: true });
  let changed = 0;
  // never more than waited at first: producers may go on
  for (let idle = 0; !dryRun && changed < matched; ) {
    const count = Math.min(STEP, matched - changed);
    const step = await call<Changed>(context, "move", { ...target, count, reason, by }).catch((error) => {
      if (!isBusy(error) || idle++ === IDLE_STEPS) throw error;
      return null;
    });
    if (step !== null)
      told(context, "dispatchPolicy:move", {
        ...{ policy, partition, toPolicy: toPolicy ?? null, toPartition: toPartition ?? null },
        ...actOf(step, options),
      });
    if (step?.changed === 0) break; // the others are locked, or gone
    changed += step?.changed ?? 0;
    if (step === null) await delay(IDLE_SLEEP_MS);
    else idle = 0;
  }
  return { matched, changed };
}
