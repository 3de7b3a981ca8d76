import { setTimeout as delay } from "node:timers/promises";
import { isBusy } from "../db/outage.ts";
import { RemovalError } from "../errors.ts";
import { call, type OperateContext } from "./call.ts";
import { IDLE_SLEEP_MS, IDLE_STEPS } from "./steps.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** The options of `removePolicy`. */
export type RemovePolicyOptions = {
  /** The name of the policy that goes. An unknown one is an {@link UnknownPolicyError}. */
  policy: string;
  /** The policy that its waiting jobs move to. Their tasks must be of that policy. Default: none may wait. */
  into?: string | undefined;
  /** Counts the waiting jobs, and changes nothing. Default false. */
  dryRun?: boolean | undefined;
} & Why;

/** Documented at {@link Operate.removePolicy}. */
export async function removePolicy(
  context: OperateContext,
  options: RemovePolicyOptions,
): Promise<Changed & { removed: boolean }> {
  checkVerb("removePolicy", options, { needs: ["policy"], takes: ["into", "dryRun", "reason", "by"] });
  const { policy, into, dryRun, reason, by } = options;
  const total = { matched: 0, changed: 0, removed: false };
  for (let idle = 0; ; ) {
    const step = await call<Changed & { removed: boolean }>(context, "remove_policy", {
      ...{ policy, into, reason, by, dry_run: dryRun },
    }).catch((error) => {
      if (!isBusy(error) || idle === IDLE_STEPS) throw error;
      return null;
    });
    total.matched = Math.max(total.matched, step?.matched ?? 0, total.changed + (step?.changed ?? 0));
    total.changed += step?.changed ?? 0;
    total.removed = step?.removed ?? false;
    if (dryRun || total.removed) return total;
    // without waiting jobs, a step deletes a page of partitions
    const progress = step !== null && (step.changed > 0 || step.matched === 0);
    if (progress) idle = 0;
    else if (idle++ === IDLE_STEPS)
      throw new RemovalError(
        `removePolicy: another session keeps ${step?.matched} jobs of policy "${policy}" locked; ${total.changed} have ` +
          "moved. End long transactions (view pg_stat_activity), then call it again",
      );
    else await delay(IDLE_SLEEP_MS);
  }
}
