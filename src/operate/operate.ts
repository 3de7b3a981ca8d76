import type { CleanupOptions, DbJob } from "graphile-worker";
import type { TickResult } from "../admit/tick.ts";
import type { Until } from "../policy/policy.ts";
import type { AdmitOptions } from "./admit.ts";
import type { Override, SetLimitOptions } from "./limits.ts";
import type { Explanation, PartitionStatus, PartitionsQuery } from "./look.ts";
import type { PauseOptions } from "./pause.ts";
import type { ReleaseSlotsOptions } from "./release-slots.ts";
import type { RemoveOptions } from "./remove.ts";
import type { PolicyStatus, WorkerStatus } from "./status.ts";
import type { Repaired } from "./sweep.ts";
import type { Changed, LimiterTarget, PartitionTarget, Target, Why } from "./targets.ts";
import type { TickOptions } from "./tick.ts";

/** The changes of a job that `rescheduleJobs` makes; what is left out stays as it is. */
export interface RescheduleOptions {
  /** When it is due: a Date, or a text that PostgreSQL reads as a time. */
  runAt?: string | Date;
  /** A whole number, −32768 to 32767; lower runs first. */
  priority?: number;
  /** A whole number, 0 to 32767. A staged job that never ran has none to change. */
  attempts?: number;
  /** A whole number, 1 to 32767. */
  maxAttempts?: number;
}

/**
 * What operators and programs can do with policies. Each call is a transaction of its own, unless its method says otherwise.
 *
 * A value that is not allowed is an {@link ArgumentError}; it names the method, the option, the value and what was
 * expected. A policy that nobody declared is an {@link UnknownPolicyError}; it lists the known ones. A target that matches
 * nothing is no error: `matched` is 0.
 *
 * A call that takes `reason` and `by`, and that is no dry run, leaves a row with them in the view `audit`.
 */
export interface Operate {
  /**
   * Stops admission: of one partition, of a policy, or with `{ all: true }` of every policy. Jobs in flight go on. Jobs can
   * still be added; they wait.
   *
   * It lasts until `until`, or without it until {@link resume}. A later pause of the same target replaces its end. A
   * partition that no job has made yet is paused when its first job comes.
   *
   * `matched` counts policies or partitions; `changed` counts the policies whose pause has another end now (a partition
   * always counts).
   *
   * @throws {ArgumentError} unless either a policy or `all: true` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.pause({ policy: "fetch_endpoint", partition: "ep1", reason: "incident 12", by: "ana" });
   */
  pause(options: PauseOptions): Promise<Changed>;

  /**
   * Lifts a pause. For a partition it also lifts a hold, and the rule that after a hold one job goes first.
   *
   * The resume of a policy leaves pauses and holds of single partitions alone; that of a partition leaves its policy's
   * pause alone. `changed` counts what was stopped.
   *
   * @throws {ArgumentError} unless either a policy or `all: true` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.resume({ policy: "fetch_endpoint", partition: "ep1" });
   */
  resume(options: Target & Why): Promise<Changed>;

  /**
   * Stops one partition for some time, say after a server answered 429. Unlike a pause it always ends by itself. Jobs in
   * flight go on.
   *
   * Give `until`, a Date, or `forMs`, milliseconds from now by the database's clock. Of two holds the one that ends later
   * counts. After its end one job goes first; the others follow once one has succeeded. {@link resume} ends it at once.
   *
   * @throws {ArgumentError} unless exactly one of `until` and `forMs` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.hold({ policy: "fetch_endpoint", partition: "ep1", forMs: 30_000, reason: "429" });
   */
  hold(options: PartitionTarget & Until & Why): Promise<Changed>;

  /**
   * Admits due jobs past their gates, pauses and holds, and charges them all the same: tokens stop at 0, and more jobs than
   * `max` may be in flight. Jobs that are not due yet stay.
   *
   * Give `count`, the most jobs to admit, or `drain: true` for all that are due, at most 10,000 a call. It goes in steps of
   * 200, each a transaction: if one fails, those before it stay admitted. With `dryRun` nothing is admitted, and `matched`
   * says how many jobs would go.
   *
   * `changed` counts the jobs that were admitted, `notDue` those that were not due (at most 10,000 are counted).
   *
   * @throws {ArgumentError} unless either `count`, a whole number from 1, or `drain: true` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { changed, notDue } = await utils.admit({ policy: "fetch_endpoint", partition: "ep1", count: 5 });
   */
  admit(options: AdmitOptions): Promise<Changed & { notDue: number }>;

  /**
   * Removes staged jobs: by `ids`, by `jobKey`, or all of a policy or of one of its partitions. What is given together has
   * to fit together. Jobs that were admitted stay, and so do those that another session has locked.
   *
   * A failed job that waits for its retry counts as staged: Graphile Worker keeps it, as failed for good. With `dryRun`
   * nothing is removed, and `matched` says how many jobs would be.
   *
   * @throws {ArgumentError} unless `ids`, `jobKey` or `policy` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { matched } = await utils.remove({ policy: "fetch_endpoint", partition: "ep1", dryRun: true });
   */
  remove(options: RemoveOptions): Promise<Changed>;

  /**
   * Gives back the slots of a job in flight that has not ended: one that hangs, or that is known to be lost. `jobId` is
   * Graphile Worker's id or the staged one.
   *
   * The job is not stopped. If it runs on, it counts no longer, and its end gives nothing back. A job that has not started
   * yet goes back into staging and passes its gates once more. `matched` is 0 for a job that holds no slots. A policy's
   * `slotTimeout` does the same by itself.
   *
   * @throws {ArgumentError} without a job id
   * @example await utils.releaseSlots({ jobId: "1234", reason: "hangs since the deploy" });
   */
  releaseSlots(options: ReleaseSlotsOptions): Promise<Changed>;

  /**
   * The former name of {@link releaseSlots}. Without options, the `release` of utils gives up their connections.
   *
   * @deprecated Use `releaseSlots`.
   * @example await utils.release({ jobId: "1234" }); // utils.releaseSlots({ jobId: "1234" })
   */
  release(options: ReleaseSlotsOptions): Promise<Changed>;

  /**
   * Overrides a gate's numbers, from now (or `from`) until `until`, or without it until {@link clearLimit}.
   *
   * `set` has values by the gate's kind; those left out stay as the policy has them. A throttle has `rate` (tokens), `per`
   * (a duration such as "1 minute") and `burst` (tokens; not with a sliding window). A concurrency gate has `max` (jobs).
   * An adaptive one has `initialMax`, `min` and `max` (jobs) and `targetLagMs` (milliseconds).
   *
   * `key` is the scope key: the partition's for a gate over the partition, none for one over the policy. Without `key` it
   * is for every key of the gate; the limit of a key goes before it. A new limit replaces those of the same target that
   * are in force, or that would begin before its end.
   *
   * `matched` counts the limiters that have the key by now. It is 0 for a key that no job has had yet, for which the limit
   * holds once one has, and for one that is misspelt.
   *
   * @throws {ArgumentError} if the policy has no such gate, the gate no such value, or `until` is past or not after `from`
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.setLimit({ policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 0 }, by: "ana" });
   */
  setLimit(options: SetLimitOptions): Promise<Changed>;

  /**
   * Takes back what {@link setLimit} set for the same target: the limit in force, and those to come. Without `key` it takes
   * back the limit for every key, and leaves those of single keys. `changed` counts the limits that it ended.
   *
   * @throws {ArgumentError} if the policy has no such gate
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.clearLimit({ policy: "fetch_endpoint", gate: "account", key: "acme" });
   */
  clearLimit(options: LimiterTarget & Why): Promise<Changed>;

  /**
   * The limits that {@link setLimit} set, of all policies or of one: those in force and those to come.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example for (const { gate, key, override, until } of await utils.limits()) console.log(gate, key, override, until);
   */
  limits(options?: { policy?: string | undefined }): Promise<readonly Override[]>;

  /**
   * Takes `cost` tokens (0 to 1e12, default 1) from a throttle, for work that is no job. It never waits: without enough
   * tokens, or while another transaction keeps the throttle locked, it takes none, and `retryAt` says when to ask again.
   *
   * `key` is the scope key; a throttle over the policy needs none. A cost above the capacity goes when the bucket is full.
   *
   * @throws {ArgumentError} if the gate is no throttle, or no job has had the key yet
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { taken, retryAt } = await utils.take({ policy: "fetch_endpoint", gate: "all" });
   */
  take(
    options: LimiterTarget & { cost?: number | undefined },
  ): Promise<{ taken: boolean; retryAt: Date | null }>;

  /**
   * Why a job or a partition waits, and how it stands. The job's `id` is Graphile Worker's or the staged one.
   *
   * `reason` is null if nothing holds it back, and for a job that was admitted: that one has `admittedAt`, and once it was
   * fetched `startedAt`. A job that is neither staged nor in flight has the reason null and nothing else, and so has a
   * partition that is not known.
   *
   * @throws {ArgumentError} unless either `id` or `policy` and `partition` are given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { reason, blockedOn, eligibleAt } = await utils.explain({ policy: "fetch_endpoint", partition: "ep1" });
   */
  explain(options: { id: string } | PartitionTarget): Promise<Explanation>;

  /**
   * Policies and worker pools as they stand: what waits and what is in flight, what is paused or switched off, and which
   * workers are alive. With `policy` only that policy; the workers are all of them.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { policies, workers } = await utils.status();
   */
  status(options?: {
    policy?: string | undefined;
  }): Promise<{ policies: readonly PolicyStatus[]; workers: readonly WorkerStatus[] }>;

  /**
   * Partitions as they stand, in the order of their keys, 100 unless `limit` says otherwise. For the next page give the last
   * key as `after`. Partitions of one key, of several policies, come together: a page may have some more than `limit`.
   *
   * @throws {ArgumentError} if `limit` is no whole number from 1
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const page = await utils.partitions({ policy: "fetch_endpoint", search: "ep", limit: 20 });
   */
  partitions(query?: PartitionsQuery): Promise<readonly PartitionStatus[]>;

  /**
   * Switches a policy off, whatever its declaration says: jobs are added past it, and ticks admit what is staged past its
   * gates. It stays off through restarts and deploys, until {@link enable}. `changed` is 0 if it was off.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.disable({ policy: "fetch_endpoint", reason: "partner has no limits today", by: "ana" });
   */
  disable(options: { policy: string } & Why): Promise<Changed>;

  /**
   * Switches a policy on, whatever its declaration says: its gates hold again. `changed` is 0 if it was on.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.enable({ policy: "fetch_endpoint" });
   */
  enable(options: { policy: string } & Why): Promise<Changed>;

  /**
   * One admission pass, over one policy or over each, one after the other; each has a budget of its own. Workers tick by
   * themselves: this is for scripts and tests. It is not held to `ahead`, the bound on jobs admitted ahead of the workers.
   *
   * With `shard` it looks at that shard only. `now` is for tests: it stands for the database's clock, and only the owner of
   * the schema may give it. `nextEligibleAt` says when something may be admitted next; null: not until something happens.
   *
   * @throws {ArgumentError} for a `now` by anybody but the schema's owner
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { admitted, denied, nextEligibleAt } = await utils.tick({ policy: "fetch_endpoint" });
   */
  tick(options?: TickOptions): Promise<TickResult>;

  /**
   * One repair pass, as workers make every `sweepInterval`. Every count of `repaired` is zero in a healthy run. Dead worker
   * pools are found by workers' sweeps only: here `pools` and `unlocked` are always 0.
   *
   * @throws {AggregateError} naming the steps that failed, after all the others were done
   * @example const { repaired } = await utils.sweep();
   */
  sweep(): Promise<{ repaired: Repaired }>;

  /**
   * Graphile Worker's `completeJobs`: deletes jobs without running them, and takes staged ids too. What they held is given
   * back. Locked jobs are left. Resolves to the jobs it deleted.
   *
   * @example await utils.completeJobs([job.id]);
   */
  completeJobs(ids: string[]): Promise<DbJob[]>;

  /**
   * Graphile Worker's `permanentlyFailJobs`: fails jobs for good, and takes staged ids too. A staged job is handed to
   * Graphile Worker as failed, under an id of its own. Locked jobs are left. Resolves to the jobs it failed.
   *
   * @example await utils.permanentlyFailJobs([job.id], "cancelled by the customer");
   */
  permanentlyFailJobs(ids: string[], reason?: string): Promise<DbJob[]>;

  /**
   * Graphile Worker's `rescheduleJobs`: changes when and how jobs run, and takes staged ids too. A staged job keeps waiting
   * for its gates. A job that was admitted gives its slots back, and passes its gates again. Locked jobs are left. Resolves
   * to the jobs as they are now.
   *
   * @throws {ArgumentError} if `priority`, `attempts` or `maxAttempts` is none that Graphile Worker can store
   * @example await utils.rescheduleJobs([job.id], { runAt: new Date(Date.now() + 60_000), priority: 5 });
   */
  rescheduleJobs(ids: string[], options: RescheduleOptions): Promise<DbJob[]>;

  /**
   * Graphile Worker's `cleanup`, which keeps the identifiers of these utils' policies and of `dispatch_policy_tick`.
   * Default: `{ tasks: ["GC_JOB_QUEUES"] }`.
   *
   * @example await utils.cleanup({ tasks: ["GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"] });
   */
  cleanup(options?: CleanupOptions): Promise<void>;
}
