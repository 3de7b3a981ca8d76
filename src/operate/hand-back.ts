import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** The options of `handBack`. */
export type HandBackOptions = {
  /** The name of the policy whose waiting jobs go. An unknown one is an {@link UnknownPolicyError}. */
  policy: string;
} & Why & {
    /** Counts the jobs, and hands none back. Default false. */
    dryRun?: boolean | undefined;
  };

/** The result of `handBack`. */
export interface HandedBack extends Changed {
  /** How many jobs Graphile Worker refuses. They stay, set aside with the error. */
  refused: number;
  /** How many of those that left were dropped, because they had expired. With `dryRun`: how many would be. */
  expired: number;
}

/** At most so many jobs go in one transaction. */
const STEP = 500;

/** Documented at {@link Operate.handBack}. */
export async function handBack(context: OperateContext, options: HandBackOptions): Promise<HandedBack> {
  checkVerb("handBack", options, { needs: ["policy"], takes: ["reason", "by", "dryRun"] });
  const { policy, reason, by, dryRun } = options;
  const step = (dry: boolean) =>
    call<HandedBack>(context, "hand_back", { policy, count: STEP, reason, by, dry_run: dry });
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
