// What acts on jobs. Each works in steps, so that no transaction holds many of them for long.
import { setTimeout as delay } from "node:timers/promises";
import { grouped, some } from "../../counted.ts";
import { parameter } from "../../db/engine.ts";
import { isBusy } from "../../db/outage.ts";
import { actOf, aimOf, call, type OperateContext, told } from "../call.ts";
import { IDLE_SLEEP_MS, IDLE_STEPS } from "../steps.ts";
import { releaseMarked } from "../sweep.ts";
import type { ByPolicy, Changed, PartitionTarget, PolicyTarget, Why } from "../targets.ts";
import type { Either, Verb } from "../verb.ts";
import { fromNow, named } from "../words.ts";
import { POLICY } from "./help.ts";

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

/**
 * The options of `retry`: failed jobs by their ids, or those of a policy or a partition. Neither is an
 * {@link ArgumentError}. If several options select jobs, a job must match all.
 */
export type RetryOptions = (
  | {
      /** Graphile Worker's ids, or the ones that the jobs had in staging. */
      ids: readonly string[];
    }
  | PolicyTarget
) &
  Why & {
    /** Only jobs that failed for good at this time or later. Default: whenever they failed. */
    since?: Date | undefined;
    /** Only jobs that failed for good before. Default: the time of the call. */
    until?: Date | undefined;
    /** Only jobs whose last error contains this text. Default: whatever it says. */
    error?: string | undefined;
    /** Counts the jobs, and brings none back. Default false. */
    dryRun?: boolean | undefined;
  };

/** The options of `releaseSlots`. */
export type ReleaseSlotsOptions = {
  /** The job's id: Graphile Worker's or the staged one. */
  jobId: string;
} & Why;

export interface JobVerbs {
  /**
   * Admits due jobs past their gates, pauses and holds. It still charges the gates: tokens stop at 0, and more jobs than
   * `max` may be in flight. Jobs that are not due yet stay.
   *
   * Give `count`, the most jobs to admit, or `drain: true` for all due jobs, at most 10,000 a call. It admits in steps of
   * 200, each a transaction: if one fails, the jobs of earlier steps stay admitted. With `dryRun` no job is admitted, and
   * `matched` says how many would be.
   *
   * `changed` counts the jobs that were admitted, `notDue` those that were not due (at most 10,000 are counted).
   *
   * @throws {ArgumentError} unless either `count`, a whole number from 1, or `drain: true` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { changed, notDue } = await utils.admit({ policy: "fetch_endpoint", partition: "ep1", count: 5 });
   */
  admit(options: ByPolicy<AdmitOptions>): Promise<Changed & { notDue: number }>;

  /**
   * Moves the staged jobs of a partition to another partition, to another policy, or to both, say because a tenant has another
   * name.
   *
   * They keep their ids, keys, `runAt`, priorities and attempts, so also their order. Jobs in flight stay, and so do jobs that
   * another session has locked. With `toPartition` alone they stay under their policy, and go by the limits of that partition.
   * Perhaps no job has had it yet, and the policy's numbers depend on the context. Then a process that has the policy works them
   * out. With `toPolicy` it works out the partition as well, unless `toPartition` names it. Pauses and holds do not move.
   *
   * The payloads stay as they are. A job that fails later waits for its retry in the new partition. But one that has failed
   * for good, and that {@link retry} brings back, goes by its payload.
   *
   * The way back is to move them again, with their `ids` if the other partition had jobs of its own.
   *
   * It works in steps of 500 jobs, each a transaction and a `dispatchPolicy:move`. If one fails, the jobs of earlier steps have moved. `matched` counts
   * the jobs that waited, `changed` those that moved. With `dryRun` nothing changes.
   *
   * @throws {ArgumentError} unless `toPartition` or `toPolicy` is another one, or if a job's task is not of `toPolicy`
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.move({ policy: "fetch_endpoint", partition: "acme", toPartition: "acme-eu", by: "ana" });
   */
  move(options: ByPolicy<MoveOptions>): Promise<Changed>;

  /**
   * Removes staged jobs: by `ids`, by `jobKey`, or all of a policy or of one of its partitions. If several are given, a job
   * must match all. Admitted jobs stay, and so do jobs that another session has locked.
   *
   * A failed job that waits for its retry counts as staged: Graphile Worker keeps it, as failed for good. It goes in steps of
   * 500 jobs, each in a transaction with a row in the audit. With `dryRun` no job is removed, and `matched` says how many
   * would be. Jobs that are added meanwhile may stay.
   *
   * @throws {ArgumentError} unless `ids`, `jobKey` or `policy` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { matched } = await utils.remove({ policy: "fetch_endpoint", partition: "ep1", dryRun: true });
   */
  remove(options: ByPolicy<RemoveOptions>): Promise<Changed>;

  /**
   * Cancels jobs: by `ids`, or all of a policy or of one of its partitions.
   *
   * A staged job is removed. A failed job that waits for its retry, and an admitted one that no worker has fetched, fails for
   * good in Graphile Worker. Its error says who cancelled it and why, and {@link retry} brings it back. The slots of
   * admitted jobs are freed at once, or with the next sweep.
   *
   * A job that runs is told to end, in whichever process it runs: its `helpers.abortSignal` aborts with a
   * {@link CancelledError}. If the run then fails, the job has failed for good. If it succeeds, it has succeeded. It keeps its
   * slot until it ends, so a task must heed its signal. A policy's `slotTimeout` is the backstop.
   *
   * Unlike {@link remove} it passes by no locked job: it waits for whoever is admitting one. It goes in steps of 500 jobs,
   * each in a transaction with a row in the audit. With `dryRun` no job is cancelled, and `matched` says how many would be.
   *
   * @throws {ArgumentError} unless `ids` or `policy` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.cancel({ policy: "fetch_endpoint", partition: "ep1", reason: "left us", by: "ana" });
   */
  cancel(options: ByPolicy<CancelOptions>): Promise<Cancelled>;

  /**
   * Brings jobs back that have failed for good, with all their attempts: by `ids`, or those of a policy or of one of its
   * partitions.
   *
   * They pass their gates again, and wait after a failure as their policy says. `matched` counts the failed jobs that match,
   * `changed` those that were brought back. A job that a newer one of its key had replaced stays, unless its id is given. So
   * does one that another session has locked. A job that was admitted past its policy's staging has no partition here, so
   * `partition` does not find it.
   *
   * It brings back 1,000 jobs or 8 MB of payloads at a time, each step a transaction.
   *
   * @throws {ArgumentError} unless `ids` or `policy` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.retry({ policy: "fetch_endpoint", error: "502", since: new Date("2026-11-24T22:00Z"), by: "ana" });
   */
  retry(options: ByPolicy<RetryOptions>): Promise<Changed>;

  /**
   * Frees the slots of a job in flight that has not ended, because it hangs or is known to be lost. `jobId` is
   * Graphile Worker's id or the staged one.
   *
   * The job is not stopped. If it runs on, it no longer counts, and its end frees nothing. A job that has not started
   * yet goes back into staging and passes its gates again. `matched` is 0 for a job without slots. If `changed` alone is 0,
   * it keeps them, because another transaction has the job, or a limit that it counts for, locked: call it again. A
   * policy's `slotTimeout` does the same by itself.
   *
   * @throws {ArgumentError} without a job id
   * @example await utils.releaseSlots({ jobId: "1234", reason: "hangs since the deploy" });
   */
  releaseSlots(options: ReleaseSlotsOptions): Promise<Changed>;
}

/** Options as a step reads them, whatever selects the jobs. */
type Select = Why &
  Partial<PolicyTarget> & {
    readonly ids?: readonly string[];
    readonly jobKey?: string;
    readonly dryRun?: boolean;
  };

/** The step of a verb that goes through jobs by their ids. */
interface Page extends Changed {
  readonly more: boolean;
  readonly last_id: string | null;
}

const BY_ID: readonly Either[] = [
  {
    of: ["ids", "policy"],
    expected: "{ ids } or { policy, partition? }",
    got: "neither",
    flags: "no jobs: give their ids, or --policy NAME",
  },
];

/** How many jobs one step admits, moves or removes, and how many one brings back. */
const [ADMITTED, STEP, BROUGHT_BACK] = [200, 500, 1000];
/** The most jobs that one call drains. */
const MOST_DRAINED = 10_000;

const admitVerb: Verb<AdmitOptions, Changed & { notDue: number }> = {
  summary: "admit due jobs past their gates",
  about: "The gates are still charged: tokens stop at 0, and more jobs than max may be in flight.",
  examples: [
    ["--policy fetch_endpoint --partition ep1 --count 5", "count them"],
    ["--policy fetch_endpoint --partition ep1 --count 5 --yes", "admit them"],
  ],
  options: {
    ...POLICY,
    partition: { meaning: "the key of one of its partitions", default: "the whole policy" },
    count: { meaning: "how many jobs at most; or instead of it:" },
    drain: { meaning: "all that are due, at most 10,000" },
  },
  either: [
    {
      of: ["count", "drain"],
      most: 1,
      expected: "{ count } or { drain: true }",
      flags: "give --count N or --drain",
    },
  ],
  dryRun: "jobs",
  isFinal: true,
  run: admit,
  did: (options, { changed, notDue }) =>
    `Admitted ${some(changed, "job")} of ${named(options)}.${laterIn(notDue)}`,
  would: (options, { matched, notDue }) =>
    `${some(matched, "due job")} of ${named(options)} would be admitted.${laterIn(notDue)}`,
  form: {
    label: "Let through now…",
    about: "Admits due jobs past the gates. Their slots and tokens count all the same.",
    target: ["policy", "partition"],
    fields: [
      {
        ...{ option: "count", label: "How many at most", isRequired: true },
        hint: 'a number, or "all": those that are due, at most 10,000',
      },
    ],
    count: ({ policy, partition }) => ["admit", { policy, partition, drain: true }],
  },
};

const laterIn = (notDue: number) => (notDue > 0 ? ` ${grouped(notDue)} are not due.` : "");

async function admit(context: OperateContext, options: AdmitOptions): Promise<Changed & { notDue: number }> {
  const { policy, partition, reason, by, dryRun } = options;
  const { count = MOST_DRAINED } = options as { count?: number };
  const total = { matched: 0, changed: 0, notDue: 0 };
  for (let left = count; left > 0; ) {
    const step = dryRun ? count : Math.min(left, ADMITTED);
    const args = { policy, count: step, partition, reason, by, dry_run: dryRun };
    const row = await call<Changed & { not_due: number }>(context, "admit", args);
    total.matched += row.matched;
    total.changed += row.changed;
    total.notDue = row.not_due;
    if (row.changed > 0) told(context, "dispatchPolicy:admit", { policy, shard: null, count: row.changed });
    left -= step;
    if (row.changed < step) break;
  }
  return total;
}

const moveVerb: Verb<MoveOptions, Changed> = {
  summary: "move staged jobs to another partition or policy",
  about: "Jobs in flight stay. To take it back, move them again.",
  examples: [
    ["--policy fetch_endpoint --partition acme --to-partition acme-eu", "count the jobs"],
    ["--policy fetch_endpoint --partition acme --to-partition acme-eu --yes", "move them"],
  ],
  options: {
    ids: { meaning: "only these, ids of staged jobs" },
    ...POLICY,
    partition: { meaning: "the key of the partition that they leave", required: true },
    toPartition: { meaning: "the key of the other one", default: "--to-policy works it out" },
    toPolicy: { meaning: "the policy that gets them", default: "the same" },
  },
  either: [
    {
      of: ["toPartition", "toPolicy"],
      expected: "{ toPartition } or { toPolicy }",
      flags: "nowhere to go: give --to-partition KEY or --to-policy NAME",
      form: "Say where the jobs go: fill in a partition, a policy, or both",
    },
  ],
  dryRun: "jobs",
  isFinal: true,
  run: move,
  did: (options, { matched, changed }) =>
    `Moved ${grouped(changed)} of ${some(matched, "staged job")} to ${whither(options)}.`,
  would: (options, { matched }) => `${some(matched, "staged job")} would move to ${whither(options)}.`,
  form: {
    label: "Move…",
    about:
      "Moves staged jobs to another partition, under its limits. Jobs in flight stay. To take it back, move them again.",
    target: ["policy", "partition"],
    fields: [
      { option: "toPartition", label: "To the partition", hint: "empty: the other policy works it out; " },
      { option: "toPolicy", label: "Of the policy", hint: "empty: the same" },
    ],
    // until the form says where they go: both verbs take the staged jobs of the partition
    count: ({ policy, partition, toPartition, toPolicy }) =>
      toPartition === undefined && toPolicy === undefined
        ? ["remove", { policy, partition }]
        : ["move", { policy, partition, toPartition, toPolicy }],
  },
  bulk: { states: ["staged"], place: "staged_id", needs: ["policy", "partition"] },
};

const whither = ({ toPartition, toPolicy }: MoveOptions) =>
  [toPartition !== undefined && `partition ${toPartition}`, toPolicy !== undefined && `policy ${toPolicy}`]
    .filter(Boolean)
    .join(" of ");

async function move(context: OperateContext, options: MoveOptions): Promise<Changed> {
  const { policy, partition, toPartition, toPolicy, ids, dryRun, reason, by } = options;
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

const removeVerb: Verb<RemoveOptions, Changed> = {
  summary: "remove staged jobs",
  about:
    "Admitted jobs stay, also those whose id is given: cancel ends them. A job must match all that is given.",
  examples: [
    ["--policy fetch_endpoint --partition ep1", "count the jobs of a partition"],
    ["1000000000000042 --yes", "remove one job"],
  ],
  options: {
    ids: { meaning: "ids of staged jobs; of failed ones that wait for their retry also Graphile Worker's" },
    policy: { meaning: "only those of this policy; without ids all of them", default: "any" },
    partition: { meaning: "only those of this partition", default: "any" },
    jobKey: { meaning: "only the job of this key", default: "any" },
  },
  either: [
    {
      of: ["ids", "jobKey", "policy"],
      expected: "{ ids }, { jobKey } or { policy, partition? }",
      got: "none of them",
      flags: "no jobs: give their ids, --job-key KEY or --policy NAME",
    },
  ],
  dryRun: "jobs",
  isFinal: true,
  run: remove,
  did: (_, { matched, changed }) => `Removed ${grouped(changed)} of ${some(matched, "staged job")}.`,
  would: (_, { matched }) => `${some(matched, "staged job")} would be removed.`,
  form: {
    label: "Remove",
    about: "Removes jobs that wait in staging. Jobs in flight stay. There is no way back.",
    target: ["policy", "partition", "ids"],
    ends: true,
  },
  bulk: { states: ["staged", "parked"], place: "staged_id", needs: ["policy"] },
};

async function remove(context: OperateContext, options: RemoveOptions): Promise<Changed> {
  const { ids, jobKey, policy, partition, reason, by, dryRun } = options as Select;
  const target = { ids, job_key: jobKey, policy, partition };
  const { matched } = await call<Page>(context, "remove", { ...target, dry_run: true });
  let changed = 0;
  let after: string | null = null;
  // never more than waited at first: producers may go on. A call that finds nothing has its row in the audit as well
  for (let goesOn = !dryRun; goesOn; ) {
    const count = Math.max(1, Math.min(STEP, matched - changed));
    const step: Page = await call<Page>(context, "remove", { ...target, reason, by, count, after });
    changed += step.changed;
    // at the end it begins anew, because jobs that were locked as their step came may be free by now
    goesOn = (step.more || after !== null) && changed < matched;
    after = step.more ? step.last_id : null;
    told(context, "dispatchPolicy:remove", { ...aimOf(options), ...actOf(step, options) });
  }
  return { matched: Math.max(matched, changed), changed };
}

const cancelVerb: Verb<CancelOptions, Cancelled> = {
  summary: "cancel jobs, and tell those that run to end",
  about:
    "Jobs that run are told to end, and keep their slots until they do. A job must match all that is given.",
  examples: [
    ["--policy fetch_endpoint --partition ep1", "count the jobs of a partition"],
    ['1000000000000042 --yes --reason "wrong batch"', "cancel one job"],
  ],
  options: {
    ids: { meaning: "ids of jobs, staged or Graphile Worker's" },
    policy: { meaning: "all of this policy" },
    partition: { meaning: "only those of this partition", default: "all" },
  },
  either: BY_ID,
  dryRun: "jobs",
  isFinal: true,
  run: cancel,
  did: (_, cancelled) =>
    `Cancelled ${grouped(cancelled.changed)} of ${some(cancelled.matched, "job")}.${runsIn(cancelled, cancelled.running === 1 ? "was" : "were")}`,
  would: (_, counted) => `${some(counted.matched, "job")} would be cancelled.${runsIn(counted, "would be")}`,
  form: {
    label: "Cancel",
    about:
      "Ends jobs wherever they are. Those that run are told to end, and keep their slots until they do. " +
      "Staged jobs do not come back; retry brings back the others.",
    target: ["policy", "partition", "ids"],
    ends: true,
  },
  bulk: { states: ["staged", "parked", "ready", "running"], place: "staged_id", needs: ["policy"] },
};

/** The runs that may go on for a while. */
function runsIn({ matched, running }: Cancelled, are: string): string {
  if (running === 0) return "";
  const they =
    running === 1 ? `${matched === 1 ? "It" : "1 of them"} runs` : `${grouped(running)} of them run`;
  return ` ${they}, and ${are} told to end.`;
}

async function cancel(context: OperateContext, options: CancelOptions): Promise<Cancelled> {
  const { ids, policy, partition, reason, by, dryRun } = options as Select;
  const args = { ids, policy, partition, reason, by, dry_run: dryRun };
  const { more, last_id, ...total } = await call<Cancelled & Page>(context, "cancel", args);
  if (dryRun) return total;
  await finish(context, options, total);
  for (let goesOn = more, after = last_id, idle = 0; goesOn && idle < IDLE_STEPS; ) {
    const step: Cancelled & Page = await call<Cancelled & Page>(context, "cancel", { ...args, after });
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

const retryVerb: Verb<RetryOptions, Changed> = {
  summary: "bring back jobs that failed for good",
  about: "They have all their attempts again, and pass their gates.",
  examples: [
    ['--policy fetch_endpoint --since "2 hours" --error 502 --dry-run', "count them"],
    ["4711 4712", "bring back two jobs"],
  ],
  options: {
    ids: { meaning: "ids of jobs, Graphile Worker's or those they had in staging" },
    policy: { meaning: "the policy of the jobs" },
    partition: { meaning: "only those of this partition", default: "all" },
    since: { meaning: "only those that failed since: a time, or a duration ago", default: "whenever" },
    until: { meaning: "only those that failed before", default: "now", kind: "past" },
    error: { meaning: "only those whose last error contains this", default: "whatever it says" },
  },
  either: BY_ID,
  dryRun: "jobs",
  run: retry,
  did: (_, { matched, changed }) => `Brought back ${grouped(changed)} of ${some(matched, "failed job")}.`,
  would: (_, { matched }) => `${some(matched, "failed job")} would be brought back.`,
  form: {
    label: "Retry",
    about: "Brings back jobs that have failed for good. They go through the gates again.",
    target: ["policy", "partition", "ids"],
    fields: [{ option: "error", label: "Only those whose error contains", isFilter: true }],
  },
  bulk: { states: ["failed"], place: "id", needs: [], until: true },
};

async function retry(context: OperateContext, options: RetryOptions): Promise<Changed> {
  const { dryRun, ...rest } = options;
  const retryStep = async (count: number) => {
    const step = await call<Changed>(context, "retry", { ...rest, dry_run: dryRun, count });
    if (!dryRun) told(context, "dispatchPolicy:retry", { ...aimOf(options), ...actOf(step, options) });
    return step;
  };
  const { matched, changed } = await retryStep(BROUGHT_BACK);
  const total = { matched, changed };
  // never more than had failed at first: a job may fail again meanwhile
  while (!dryRun && total.changed < matched) {
    const step = await retryStep(Math.min(BROUGHT_BACK, matched - total.changed));
    if (step.changed === 0) break; // the others are locked, or gone
    total.changed += step.changed;
  }
  return total;
}

/** What would be released. */
export interface InFlight {
  readonly job_id: string;
  readonly policy: string;
  readonly partition: string;
  readonly admitted_at: Date;
  readonly worker_id: string | null;
}

const releaseSlotsVerb: Verb<ReleaseSlotsOptions, Changed & { job?: InFlight }> = {
  summary: "free the slots of a job that hangs",
  about: "The job is not stopped. If it runs on, it does not count: a limit may be exceeded.",
  examples: [
    ["4711", "show the job"],
    ['4711 --yes --reason "hangs since the deploy"', "free its slots"],
  ],
  options: { jobId: { meaning: "the job's id, Graphile Worker's or the staged one", required: true } },
  isFinal: true,
  event: (options, released) => [
    "dispatchPolicy:releaseSlots",
    { jobId: String(options.jobId), ...actOf(released, options) },
  ],
  async count({ engine, withPgClient }, { jobId }) {
    const id = parameter(1, "id");
    const [job] = await withPgClient((client) =>
      engine.view<InFlight>(client, "in_flight_jobs", `where job_id = ${id} or staged_id = ${id}`, [jobId]),
    );
    return { matched: job ? 1 : 0, changed: 0, ...(job && { job }) };
  },
  did({ jobId }, { matched, changed }) {
    if (matched === 0) return `Job ${jobId} has no slots.`;
    return changed > 0
      ? `Job ${jobId} has freed its slots.`
      : `Job ${jobId} keeps its slots: another transaction has it, or a limit that it counts for, locked. Try again.`;
  },
  would({ jobId }, { job }) {
    if (!job) return `Job ${jobId} has no slots.`;
    const where = job.worker_id === null ? "no worker runs it" : `${job.worker_id} runs it`;
    return `Job ${job.job_id} of ${job.policy}/${job.partition} was admitted ${fromNow(job.admitted_at)}; ${where}.`;
  },
  form: {
    label: "Release",
    about:
      "Frees the slots of a job in flight that hangs, or is lost. The job is not stopped: if it runs on, it no longer counts, and a limit may be exceeded. One that has not started waits in staging again.",
    target: ["jobId"],
  },
};

export const JOBS = {
  admit: admitVerb,
  move: moveVerb,
  remove: removeVerb,
  cancel: cancelVerb,
  retry: retryVerb,
  releaseSlots: releaseSlotsVerb,
};
