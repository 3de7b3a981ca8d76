import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** The options of `unstage`. */
export type UnstageOptions = {
  /** The name of the policy whose waiting jobs go. An unknown one is an {@link UnknownPolicyError}. */
  policy: string;
} & Why & {
    /** Counts the jobs, and unstages none. Default false. */
    dryRun?: boolean | undefined;
  };

/** The result of `unstage`. */
export interface Unstaged extends Changed {
  /** How many jobs Graphile Worker refuses. They stay, quarantined with the error. */
  refused: number;
  /** How many of those that left were dropped, because they had expired. With `dryRun`: how many would be. */
  expired: number;
}

/** At most so many jobs go in one transaction. */
const STEP = 500;

/** Documented at {@link Operate.unstage}. */
export async function unstage(context: OperateContext, options: UnstageOptions): Promise<Unstaged> {
  checkVerb("unstage", options, { needs: ["policy"], takes: ["reason", "by", "dryRun"] });
  const { policy, reason, by, dryRun } = options;
  const step = (dry: boolean) =>
    call<Unstaged>(context, "unstage", { policy, count: STEP, reason, by, dry_run: dry });
  const total = await step(true);
  if (dryRun) return total;
  total.expired = 0;
  for (let changed = -1; changed !== 0; ) {
    const row = await step(false);
    changed = row.changed;
    total.changed += changed;
    total.expired += row.expired;
    total.refused = row.refused;
    // a name that nobody declared is unknown once its last job has gone, so it is not asked again
    if (row.matched < STEP && changed + row.refused === row.matched) break;
  }
  total.matched = Math.max(total.matched, total.changed); // jobs that were staged meanwhile
  return total;
}
