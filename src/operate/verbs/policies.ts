// The way of a task's jobs into a policy, and out of it.
import { setTimeout as delay } from "node:timers/promises";
import { grouped, some } from "../../counted.ts";
import { isBusy } from "../../db/outage.ts";
import { RemovalError } from "../../errors.ts";
import { call, type OperateContext } from "../call.ts";
import { IDLE_SLEEP_MS, IDLE_STEPS } from "../steps.ts";
import type { ByPolicy, Changed, Why } from "../targets.ts";
import type { Verb } from "../verb.ts";
import { POLICY } from "./help.ts";

/** The options of `adopt`. A task without a policy is an {@link ArgumentError}. */
export type AdoptOptions = {
  /** A task that has a policy. */
  task: string;
  /** Counts the jobs, and adopts none. Default false. */
  dryRun?: boolean | undefined;
} & Why;

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

/** The options of `removePolicy`. */
export type RemovePolicyOptions = {
  /** The name of the policy that goes. An unknown one is an {@link UnknownPolicyError}. */
  policy: string;
  /** The policy that its waiting jobs move to. Their tasks must be of that policy. Default: none may wait. */
  into?: string | undefined;
  /** Counts the waiting jobs, and changes nothing. Default false. */
  dryRun?: boolean | undefined;
} & Why;

export interface PolicyVerbs {
  /**
   * Moves the jobs of a task that wait in Graphile Worker into staging, say because its policy is new. Jobs that run stay.
   *
   * A job that never ran keeps its id, key, queue, priority, `runAt`, flags and number of attempts. One that has failed
   * before stays in Graphile Worker as a parked job, with its attempts and its last error. Jobs stay as they are if they
   * are locked, have `runAt` infinity, or have no partition key.
   *
   * It moves 2,000 jobs at a time, each step a transaction, and may be repeated. `matched` counts the jobs that waited,
   * `changed` those that were adopted.
   *
   * @throws {ArgumentError} for a task without a policy, or if its policy is switched off
   * @example const { matched, changed } = await utils.adopt({ task: "fetch_endpoint", by: "ana" });
   */
  adopt(options: AdoptOptions): Promise<Changed>;

  /**
   * Hands the waiting jobs of a policy back to Graphile Worker, past the policy.
   *
   * They keep payload, queue, key, priority, `runAt`, attempts and flags. Failed jobs get the time of their retry, and keep the
   * flag of their admission. {@link disable} the policy first, because workers would stage the jobs again. Jobs in flight are in
   * Graphile Worker already, and stay there. It works in steps of 500 jobs, each a transaction. If one fails, the jobs of
   * earlier steps are unstaged, and the next call goes on.
   *
   * `matched` counts the waiting jobs, `changed` those that left. One may leave without a trace, because a newer job of its
   * key is there. `expired` of them were dropped, because they had expired. `refused` counts jobs that Graphile Worker
   * refuses; they stay, quarantined with the error. With `dryRun` no job is unstaged.
   *
   * @throws {ArgumentError} while the policy is on
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example
   * await utils.disable({ policy: "fetch_endpoint" });
   * const { changed, refused } = await utils.unstage({ policy: "fetch_endpoint", reason: "no limits any more" });
   */
  unstage(options: ByPolicy<UnstageOptions>): Promise<Unstaged>;

  /**
   * Removes a policy that no worker has any more, with its limiters and partitions, and the limits and pauses that operators
   * set. Its rows in the audit stay.
   *
   * Jobs that wait for it move to the policy `into`, whose processes work out their partitions anew. They keep their ids. So
   * a policy is renamed: deploy it under its new name, then remove the old name into the new one.
   *
   * It works in steps, each a transaction. `matched` counts the jobs that waited, at least up to 10,000, `changed` those that
   * moved. With `dryRun` nothing changes.
   *
   * @throws {RemovalError} while a worker with the policy lives, while its jobs are in flight, or while jobs wait and there is
   *   no `into`
   * @throws {ArgumentError} if a waiting job's task is not of the policy `into`
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example
   * const { matched } = await utils.removePolicy({ policy: "fetch_endpoint", dryRun: true });
   * console.log(`${matched} jobs wait`);
   */
  removePolicy(options: ByPolicy<RemovePolicyOptions>): Promise<Changed & { removed: boolean }>;
}

/** How many jobs one step adopts, and how many one unstages. */
const [ADOPTED, UNSTAGED] = [2000, 500];
/** Jobs that were locked in one round may be free in the next. */
const ROUNDS = 3;

const adoptVerb = {
  summary: "move a task's waiting jobs under its policy",
  about: "It is safe while workers run, and safe to repeat. unstage is the way back.",
  examples: [
    ["--task fetch_endpoint --dry-run", "count the jobs"],
    ["--task fetch_endpoint", "move them"],
  ],
  options: { task: { meaning: "a task with a policy; may be repeated", required: true, kind: "texts" } },
  dryRun: "jobs",
  run: adopt,
  did: ({ task }, { matched, changed }) => `${task}: adopted ${grouped(changed)} of ${some(matched, "job")}.`,
  would: ({ task }, { matched }) => `${task}: ${some(matched, "job")} to adopt.`,
} as const satisfies Verb<AdoptOptions, Changed>;

async function adopt(context: OperateContext, options: AdoptOptions): Promise<Changed> {
  let adopted = 0;
  for (let round = 1; ; round++) {
    const { matched, changed } = await adoptAll(context, options);
    adopted += changed;
    const left = matched - changed;
    if (options.dryRun || left === 0 || changed === 0 || round === ROUNDS)
      return { matched: adopted + left, changed: adopted };
  }
}

/**
 * Goes once through all jobs that wait, in the order of their ids. A step that is not full is the last: jobs that are added
 * meanwhile would keep it going for ever.
 */
async function adoptAll(
  context: OperateContext,
  { task, dryRun = false, reason, by }: AdoptOptions,
): Promise<Changed> {
  const total = { matched: 0, changed: 0 };
  for (let after = "0"; ; ) {
    const step = await call<Changed & { last_id: string | null }>(context, "adopt", {
      ...{ task, count: ADOPTED, after, reason, by, dry_run: dryRun },
    });
    total.matched += step.matched;
    total.changed += step.changed;
    if (step.last_id === null || step.matched < ADOPTED) return total;
    after = step.last_id;
  }
}

const unstageVerb: Verb<UnstageOptions, Unstaged> = {
  summary: "unstage a policy's waiting jobs",
  about: "Switch the policy off before, with disable. adopt is the way back.",
  examples: [["--policy fetch_endpoint", "unstage the jobs of a policy that is off"]],
  options: POLICY,
  dryRun: "jobs",
  run: unstage,
  did: ({ policy }, { matched, changed, expired }) =>
    `Unstaged ${grouped(changed - expired)} of ${waitingOf(policy, matched)}.${droppedIn(expired, expired === 1 ? "was" : "were")}`,
  would: ({ policy }, { matched, expired }) =>
    `${waitingOf(policy, matched)} would be unstaged.${droppedIn(expired, "would be")}`,
  note: (_, { refused }) =>
    refused > 0 &&
    `Graphile Worker refuses ${some(refused, "job")}: see the column error of the view staged_jobs.`,
};

const waitingOf = (policy: string, matched: number) =>
  `${some(matched, "waiting job")} of policy "${policy}"`;

function droppedIn(expired: number, are: string): string {
  if (expired === 0) return "";
  return ` ${some(expired, "job")} ${are} dropped, because ${expired === 1 ? "it has" : "they have"} expired.`;
}

async function unstage(context: OperateContext, options: UnstageOptions): Promise<Unstaged> {
  const { policy, reason, by, dryRun } = options;
  const step = (dry: boolean) =>
    call<Unstaged>(context, "unstage", { policy, count: UNSTAGED, reason, by, dry_run: dry });
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
    if (row.matched < UNSTAGED && changed + row.refused === row.matched) break;
  }
  total.matched = Math.max(total.matched, total.changed); // jobs that were staged meanwhile
  return total;
}

const removePolicyVerb: Verb<RemovePolicyOptions, Changed & { removed: boolean }> = {
  summary: "remove or rename a policy that no worker has",
  about: "Its partitions, limiters, limits and pauses go with it.",
  examples: [
    ["--policy fetch_endpoint", "count the jobs that wait"],
    ["--policy fetch_endpoint --into fetch --yes", "rename it"],
  ],
  options: {
    ...POLICY,
    into: { meaning: "the policy that its waiting jobs move to", default: "none may wait" },
  },
  dryRun: "jobs",
  isFinal: true,
  run: removePolicy,
  did: ({ policy, into }, { changed }) =>
    `${into === undefined ? "" : `Moved ${some(changed, "waiting job")} to policy "${into}".\n`}Removed policy "${policy}".`,
  would: ({ policy, into }, { matched }) => `Policy "${policy}" would be removed. ${fateOf(matched, into)}`,
  exit: () => "done",
};

function fateOf(waiting: number, into: string | undefined): string {
  if (into !== undefined) return `${some(waiting, "waiting job")} would move to policy "${into}".`;
  if (waiting === 0) return "No job waits.";
  return `${some(waiting, "waiting job")} must go before: give --into NAME, or unstage them.`;
}

async function removePolicy(
  context: OperateContext,
  options: RemovePolicyOptions,
): Promise<Changed & { removed: boolean }> {
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

export const POLICIES = { adopt: adoptVerb, unstage: unstageVerb, removePolicy: removePolicyVerb };
