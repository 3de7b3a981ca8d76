import { ArgumentError } from "../errors.ts";
import { actOf, aimOf, call, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, type PolicyTarget, type Why } from "./targets.ts";

/**
 * The options of `remove`: jobs by their ids, by their job key, or those of a policy or a partition. None of these is an
 * {@link ArgumentError}.
 */
export type RemoveOptions = (
  | {
      /**
       * Staged ids. Of failed jobs that wait for their retry, Graphile Worker's ids do as well. Those of admitted jobs match
       * nothing.
       */
      ids: readonly string[];
    }
  | {
      /** The key of the job. */
      jobKey: string;
    }
  | PolicyTarget
) &
  Why & {
    /** Counts the jobs, and removes none. Default false. */
    dryRun?: boolean | undefined;
  };

/** A result of the SQL function. */
interface Step extends Changed {
  readonly more: boolean;
  readonly last_id: string | null;
}

/** How many jobs one step removes. */
const STEP = 500;

/** Documented at {@link Operate.remove}. */
export async function remove(context: OperateContext, options: RemoveOptions): Promise<Changed> {
  checkVerb("remove", options, { takes: ["ids", "jobKey", "policy", "partition", "reason", "by", "dryRun"] });
  const { ids, jobKey, policy, partition, reason, by, dryRun } = options as {
    ids?: readonly string[];
    jobKey?: string;
  } & Partial<PolicyTarget> &
    Why & { dryRun?: boolean | undefined };
  if (ids === undefined && jobKey === undefined && policy === undefined) {
    throw new ArgumentError(
      "remove: expected { ids }, { jobKey } or { policy, partition? }, got none of them",
    );
  }
  const target = { ids, job_key: jobKey, policy, partition };
  const { matched } = await call<Step>(context, "remove", { ...target, dry_run: true });
  let changed = 0;
  let after: string | null = null;
  // never more than waited at first: producers may go on. A call that finds nothing has its row in the audit as well
  for (let goesOn = !dryRun; goesOn; ) {
    const count = Math.max(1, Math.min(STEP, matched - changed));
    const step: Step = await call<Step>(context, "remove", { ...target, reason, by, count, after });
    changed += step.changed;
    // at the end it begins anew, because jobs that were locked as their step came may be free by now
    goesOn = (step.more || after !== null) && changed < matched;
    after = step.more ? step.last_id : null;
    told(context, "dispatchPolicy:remove", { ...aimOf(options), ...actOf(step, options) });
  }
  return { matched: Math.max(matched, changed), changed };
}
