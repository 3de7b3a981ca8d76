import { show } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import { call, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

/** How many jobs one step admits. */
const STEP = 200;
/** The most jobs that one call drains. */
const MOST = 10_000;

/**
 * The options of `admit`: a policy or one of its partitions, and how many jobs. Both of `count` and
 * `drain`, or neither, is an {@link ArgumentError}.
 */
export type AdmitOptions = PolicyTarget &
  (
    | {
        /** How many jobs, a whole number, 1 or more. */
        count: number;
      }
    | {
        /** All that are due, at most 10,000 in a call. */
        drain: true;
      }
  ) &
  Why & {
    /** Counts the jobs, and admits none. Default false. */
    dryRun?: boolean | undefined;
  };

/** Documented at {@link Operate.admit}. */
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
    if (row.changed > 0) told(context, "dispatchPolicy:admit", { policy, shard: null, count: row.changed });
    left -= step;
    if (row.changed < step) break;
  }
  return total;
}
