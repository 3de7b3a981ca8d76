import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** How many jobs one step moves. */
const STEP = 2000;
/** Jobs that were locked in one round may be free in the next. */
const ROUNDS = 3;

/** The options of `adopt`. A task without a policy is an {@link ArgumentError}. */
export type AdoptOptions = {
  /** A task that has a policy. */
  task: string;
  /** Counts the jobs, and adopts none. Default false. */
  dryRun?: boolean | undefined;
} & Why;

/** Documented at {@link Operate.adopt}. */
export async function adopt(context: OperateContext, options: AdoptOptions): Promise<Changed> {
  checkVerb("adopt", options, { needs: ["task"], takes: ["dryRun", "reason", "by"] });
  const { dryRun = false } = options;
  let adopted = 0;
  for (let round = 1; ; round++) {
    const { matched, changed } = await adoptAll(context, options);
    adopted += changed;
    const left = matched - changed;
    if (dryRun || left === 0 || changed === 0 || round === ROUNDS)
      return { matched: adopted + left, changed: adopted };
  }
}

/**
 * Goes once through all jobs that wait, in the order of their ids. A step that is not full is the last: jobs that are added
 * meanwhile would keep it going for ever.
 */
async function adoptAll(
  context: OperateContext,
  { task, dryRun, reason, by }: AdoptOptions,
): Promise<Changed> {
  const total = { matched: 0, changed: 0 };
  for (let after = "0"; ; ) {
    const step = await call<Changed & { last_id: string | null }>(context, "adopt", {
      ...{ task, count: STEP, after, reason, by, dry_run: dryRun },
    });
    total.matched += step.matched;
    total.changed += step.changed;
    if (step.last_id === null || step.matched < STEP) return total;
    after = step.last_id;
  }
}
