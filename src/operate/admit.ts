import { show } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

/** Draining goes in steps of this many, and at most so many a call. */
const STEP = 200;
const MOST = 10_000;

export type AdmitOptions = PolicyTarget & ({ count: number } | { drain: true }) & Why & { dryRun?: boolean };

/**
 * Force-admits due jobs past gates, pauses and holds, yet charged: tokens stop at 0, in flight may pass max. Jobs that
 * are not due yet stay; `notDue` counts them. `drain` admits all that is due, at most 10,000 a call.
 *
 * A dry run admits nothing and says how many would go.
 *
 * @throws {ArgumentError} unless either `count`, a whole number from 1, or `drain` is given
 * @example await utils.admit({ policy: "fetch_endpoint", partition: "ep1", count: 5 });
 */
export async function admit(
  context: OperateContext,
  options: AdmitOptions,
): Promise<Changed & { notDue: number }> {
  checkVerb("admit", options, {
    needs: ["policy"],
    takes: ["partition", "count", "drain", "dryRun", "reason", "by"],
  });
  const { policy, partition, reason, by, dryRun } = options;
  const { count, drain = false } = options as Partial<{ count: number; drain: boolean }>;
  if ((count === undefined) === !drain) {
    throw new ArgumentError(
      `admit: expected { count } or { drain: true }, got count ${show(count)}, drain ${show(drain)}`,
    );
  }
  const admitStep = (step: number) =>
    call<Changed & { not_due: number }>(context, "admit", {
      ...{ policy, count: step, partition, reason, by, dry_run: dryRun },
    });
  if (dryRun) {
    const { matched, changed, not_due: notDue } = await admitStep(count ?? MOST);
    return { matched, changed, notDue };
  }
  const total = { matched: 0, changed: 0, notDue: 0 };
  for (let left = count ?? MOST; left > 0; ) {
    const step = Math.min(left, STEP);
    const row = await admitStep(step);
    total.matched += row.matched;
    total.changed += row.changed;
    total.notDue = row.not_due;
    left -= step;
    if (row.changed < step) break;
  }
  return total;
}
