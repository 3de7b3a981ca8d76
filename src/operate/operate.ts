import type { CleanupOptions, DbJob } from "graphile-worker";
import type { TickResult } from "../admit/tick.ts";
import type { JsonOf } from "../policy/json.ts";
import type { Until } from "../policy/policy.ts";
import type { AdmitOptions } from "./admit.ts";
import type { AdoptOptions } from "./adopt.ts";
import type { Cancelled, CancelOptions } from "./cancel.ts";
import type { Diff, DiffOptions } from "./diff.ts";
import type { DoctorOptions, Finding } from "./doctor.ts";
import type { Explanation } from "./explain.ts";
import type { ExportedJob, ExportOptions } from "./export.ts";
import type { GroupsQuery, OpenGroup } from "./groups.ts";
import type { HistoryQuery, JobHistory } from "./history.ts";
import type { Override, SetLimitOptions } from "./limits.ts";
import type { PartitionStatus, PartitionsQuery } from "./look.ts";
import type { MoveOptions } from "./move.ts";
import type { PauseOptions } from "./pause.ts";
import type { RefreshContextOptions } from "./refresh-context.ts";
import type { ReleaseSlotsOptions } from "./release-slots.ts";
import type { RemoveOptions } from "./remove.ts";
import type { RemovePolicyOptions } from "./remove-policy.ts";
import type { RescheduleOptions } from "./reschedule-jobs.ts";
import type { RetryOptions } from "./retry.ts";
import type { Status } from "./status.ts";
import type { StopInForce } from "./stops.ts";
import type { Repaired } from "./sweep.ts";
import type { Remaining, Synced } from "./sync.ts";
import type {
  ByPolicy,
  Changed,
  DryRun,
  HoldTarget,
  LimiterTarget,
  LimitTarget,
  PartitionTarget,
  Reach,
  Stored,
  Target,
  Why,
} from "./targets.ts";
import type { TickOptions } from "./tick.ts";
import type { Uninstalled, UninstallOptions } from "./uninstall.ts";
import type { Unstaged, UnstageOptions } from "./unstage.ts";

/**
 * The verbs of operators and programs. Each call is a transaction of its own, unless its method says otherwise.
 *
 * A value that is not allowed is an {@link ArgumentError}; it names the method, the option, the value and the
 * expectation. A policy that nobody declared is an {@link UnknownPolicyError}; it lists the known ones. A target that
 * matches nothing is no error: `matched` is 0.
 *
 * A call that takes `reason` and `by`, and that is no dry run, leaves a row with them in the view `audit`.
 *
 * A dry run (`dryRun: true`) changes nothing. {@link pause}, {@link resume}, {@link hold}, {@link disable}, {@link enable},
 * {@link setLimit}, {@link clearLimit} and {@link refreshContext} have one, too. Its result has `matched` as the call would
 * have it. It also has what that concerns: known `partitions`, `staged` jobs and jobs `inFlight`. With `stored` true nothing matches yet: it would wait for what is to come.
 */
export interface Operate {
  /**
   * Stops admission: of one partition, of a policy, or with `{ all: true }` of every policy. Jobs in flight go on. Jobs can
   * still be added; they wait.
   *
   * It lasts until `until`, or without it until {@link resume}. A later pause of the same target replaces its end. A
   * partition without jobs so far is paused when its first job is added. `{ all: true }` also pauses policies that are
   * declared later. {@link stops} lists what is paused.
   *
   * `matched` counts policies or partitions; `changed` counts the policies whose pause has another end now (a partition
   * always counts). If nothing matches yet, `matched` is 0 and `stored` is true: the pause waits for the first job, or for the
   * first policy.
   *
   * @throws {ArgumentError} unless either a policy or `all: true` is given, or if `until` is past
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.pause({ policy: "fetch_endpoint", partition: "ep1", reason: "incident 12", by: "ana" });
   */
  pause(options: ByPolicy<PauseOptions>): Promise<Stored & Reach>;

  /**
   * Lifts a pause. For a partition it also lifts a hold, and the rule that after a hold one job goes first.
   *
   * To resume a policy does not end pauses and holds of single partitions. To resume a partition does not end its policy's
   * pause. To resume all policies ends each policy's pause, and that of policies still to be declared. To resume one of
   * them leaves those paused. `changed` counts the policies or partitions that were stopped.
   *
   * @throws {ArgumentError} unless either a policy or `all: true` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.resume({ policy: "fetch_endpoint", partition: "ep1" });
   */
  resume(options: ByPolicy<Target & Why & DryRun>): Promise<Changed & Reach>;

  /**
   * Stops one partition for some time, say after a server answered 429. Unlike a pause it always ends by itself. Jobs in
   * flight go on. With `gate` and `key` it stops all partitions with this key of a gate, say those of an account.
   *
   * Give `until`, a Date, or `forMs`, milliseconds from now by the database's clock. Of two holds the one that ends later
   * counts. After its end one job goes first; the others follow once one has succeeded. {@link resume} ends it at once. For a
   * partition without jobs so far, `matched` is 0 and `stored` is true: the hold waits for its first job.
   *
   * A hold of a key is a limit of 0 ({@link limits} shows it). At its end the limits count again that the key had before, and
   * no job goes first. {@link setLimit} and {@link clearLimit} of the key end it at once.
   *
   * @throws {ArgumentError} unless exactly one of `until` and `forMs` is given, or if `until` is past
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.hold({ policy: "fetch_endpoint", partition: "ep1", forMs: 30_000, reason: "429" });
   * @example await utils.hold({ policy: "fetch_endpoint", gate: "account", key: "acme", forMs: 30_000, reason: "429" });
   */
  hold(options: ByPolicy<HoldTarget & Until & Why & DryRun>): Promise<Stored & Reach>;

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
   * Moves the staged jobs of a partition to another partition, to another policy, or to both, say because a tenant has
   * another name. They keep their ids, keys, `runAt`, priorities and attempts, so also their order. Jobs in flight stay, and
   * so do jobs that another session has locked.
   *
   * With `toPartition` alone they stay under their policy, and go by the limits of that partition. Perhaps no job has had
   * it yet, and the policy's numbers depend on the context. Then a process that has the policy works them out. With `toPolicy` it works out the partition as well, unless `toPartition` names it. Pauses and holds do not move.
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
   * Reads staged jobs with their payloads, in the order of their ids: by `ids`, or all of a policy or of one of its
   * partitions. Failed jobs that wait for their retry are among them. Nothing changes, and jobs in flight are not read.
   *
   * It reads page by page, at most 500 jobs or 8 MB each, so any number of jobs fits into memory. Each page is a transaction
   * and a row of the audit. Jobs that are staged meanwhile come at the end, and jobs that are admitted meanwhile may be
   * missing. {@link pause} the policy before if that matters.
   *
   * The way back is {@link addJobs} with each `spec`. They get new ids and no trace context, and the policy works out their partitions.
   *
   * @throws {ArgumentError} unless `ids` or `policy` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example for await (const { spec } of utils.export({ policy: "fetch_endpoint", partition: "ep1" })) console.log(spec);
   */
  export(options: ByPolicy<ExportOptions>): AsyncIterable<ExportedJob>;

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
   * partitions. They pass their gates again, and wait after a failure as their policy says. `matched` counts the failed
   * jobs that match, `changed` those that were brought back.
   *
   * A job that a newer one of its key had replaced stays, unless its id is given. So does one that another session has
   * locked. A job that was admitted past its policy's staging has no partition here, so `partition` does not find it.
   *
   * It brings back 1,000 jobs or 8 MB of payloads at a time, each step a transaction.
   *
   * @throws {ArgumentError} unless `ids` or `policy` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.retry({ policy: "fetch_endpoint", error: "502", since: new Date("2026-11-24T22:00Z"), by: "ana" });
   */
  retry(options: ByPolicy<RetryOptions>): Promise<Changed>;

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
   * Hands the waiting jobs of a policy back to Graphile Worker, past the policy. They keep payload, queue, key, priority,
   * `runAt`, attempts and flags. Failed jobs get the time of their retry, and keep the flag of their admission.
   *
   * {@link disable} the policy first, because workers would stage the jobs again. Jobs in flight are in Graphile Worker
   * already, and stay there. It works in steps of 500 jobs, each a transaction. If one fails, the jobs of earlier steps
   * are unstaged, and the next call goes on.
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

  /**
   * The former name of {@link releaseSlots}. Without options, the `release` of utils closes their connections.
   *
   * @deprecated Use `releaseSlots`.
   * @example await utils.release({ jobId: "1234" }); // utils.releaseSlots({ jobId: "1234" })
   */
  release(options: ReleaseSlotsOptions): Promise<Changed>;

  /**
   * Overrides a gate's numbers, from now (or `from`) until `until`, or without it until {@link clearLimit}.
   *
   * `set` has values by the gate's kind. For values that are left out, the policy's apply. A throttle has `rate` (tokens),
   * `per` (a duration such as "1 minute"; not with a calendar window) and `burst` (tokens; not with a window). A concurrency
   * gate has `max` (jobs). An adaptive one has `initialMax`, `min` and `max` (jobs) and `targetLagMs` (milliseconds).
   *
   * `key` is the scope key: the partition's for a gate over the partition, none for one over the policy. For a gate over the
   * partition, `where` names values in the context instead, such as `{ plan: "free" }`. Then the limit is for the partitions
   * that have them, also for those to come. Without both it is for every key of the gate. A limit of a key goes before one of a
   * context, and that before one of every key. Of two contexts that fit, the limit that was set last counts. A new limit
   * replaces those of the same target that are in force, or that would begin before its end.
   *
   * `matched` counts the existing limiters with the key, or partitions with the context. It is 0 if the key is misspelt, or if no job has had it yet. Then
   * `stored` is true: the limit applies as soon as a job has the key. {@link limits} shows it, with `seen` false.
   *
   * @throws {ArgumentError} if the policy has no such gate, the gate no such value, or `until` is past or not after `from`
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example
   * const acme = { policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 0 }, by: "ana" };
   * const { partitions, staged } = await utils.setLimit({ ...acme, dryRun: true });
   * await utils.setLimit(acme);
   */
  setLimit(options: ByPolicy<SetLimitOptions>): Promise<Stored & Reach>;

  /**
   * Ends the limits that {@link setLimit} set for the same target: the one in force, and future ones. Without `key` and
   * `where` it ends the limit for every key, but not those of single keys and contexts. `changed` counts the limits that it ended.
   *
   * @throws {ArgumentError} if the policy has no such gate
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.clearLimit({ policy: "fetch_endpoint", gate: "account", key: "acme" });
   */
  clearLimit(options: ByPolicy<LimitTarget & Why & DryRun>): Promise<Changed & Reach>;

  /**
   * What would have happened under another limit. It replays the recorded load of a policy with the option `load`: once
   * under the limits as they were, and once under the other one. It says for each partition how many jobs would have
   * started, how many would wait, and for how long. No limit changes.
   *
   * The replay runs this package's own SQL in a PGlite, in a thread of its own: install `@electric-sql/pglite`. A thousand
   * jobs take about 7 s of processor time, and twice that if a gate counts jobs in flight. Throttles are exact to the
   * second in which a job came. What depends on how long jobs run is a span. One end has runs that all take the mean of
   * their partition, and the other has runs as different as those recorded.
   *
   * With `definition`, a policy that `definePolicy` made, the whole policy differs: its limits, weights, fairness and shards are
   * those of your code. Jobs keep the partitions, contexts and costs that were recorded. `notReplayed` names these options if
   * they differ.
   *
   * It leaves out what limits do not decide: stops, failures, the workers' number, and the pace at which they fetch.
   *
   * @throws {ArgumentError} if the policy records no load, nothing came yet, `setLimit` would refuse the limit, or `definition`
   * cannot work out limits from a stored context
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @throws {MissingGrantError} if the role may not read the load
   * @throws {MissingPackageError} if PGlite is not installed
   * @example
   * const { partitions } = await utils.diff({ policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 80 } });
   */
  diff(options: ByPolicy<DiffOptions>): Promise<Diff>;

  /**
   * The limits that {@link setLimit} set, of all policies or of one: those in force and future ones.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example for (const { gate, key, override, until } of await utils.limits()) console.log(gate, key, override, until);
   */
  limits(options?: ByPolicy<{ policy?: string | undefined }>): Promise<readonly Override[]>;

  /**
   * Changes what the context of partitions holds, and works their limits, weights and scope keys out anew. Without it a
   * change in the application, such as another plan, counts from the partition's next job.
   *
   * It is for one partition, for those whose context has the values of `where`, or for all of the policy. `context` has the
   * values that change, and the others stay. An empty one works out the limits again from the stored contexts. The next pass
   * applies them. A job that is added later brings its own context.
   *
   * `matched` counts the partitions, `changed` those whose context or limits differ now. It works in steps of 1,000
   * partitions, each a transaction. If a function of the policy throws, the earlier steps stay.
   *
   * If these utils do not have the policy, SQL does it in one transaction. It can only if no limit, scope or weight of the
   * policy is a function.
   *
   * @throws {ArgumentError} if another definition of the policy is in force, or if these utils would need its functions and do
   * not have them
   * @throws {PayloadError} if a gate's function throws for such a context
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.refreshContext({ policy: "fetch_endpoint", where: { account: "acme" }, context: { plan: "pro" } });
   */
  refreshContext<C extends JsonOf<C>>(options: ByPolicy<RefreshContextOptions<C>>): Promise<Changed & Reach>;

  /**
   * What is stopped now, of all policies or of one: pauses, holds and open breakers, with who stopped it, why, and until
   * when. A pause of all policies is the first row, with `policy` null.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example for (const { policy, partition, kind, until, by } of await utils.stops()) console.log(policy, partition, kind, until, by);
   */
  stops(options?: ByPolicy<{ policy?: string | undefined }>): Promise<readonly StopInForce[]>;

  /**
   * Takes `cost` tokens (0 to 1e12, default 1) from a throttle, for work that is no job. It waits for no tokens:
   * without enough it takes none, and `retryAt` says when to ask again. It answers the same if another transaction has
   * the throttle locked, after 250 ms at most.
   *
   * `key` is the scope key; a throttle over the policy takes none. A cost above the capacity is taken from a full bucket.
   * A shadow gate always says yes, and counts a would-be denial if it has too few tokens.
   * A key that no job has had has a full bucket. If the gate's numbers depend on the context, only a job can tell them:
   * then a job must have had the key before.
   *
   * @throws {ArgumentError} if the gate is no throttle, the key does not fit its scope, or only a job can tell its numbers
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { taken, retryAt } = await utils.take({ policy: "fetch_endpoint", gate: "all" });
   */
  take(
    options: ByPolicy<LimiterTarget & { cost?: number | undefined }>,
  ): Promise<{ taken: boolean; retryAt: Date | null }>;

  /**
   * Lowers a throttle to what a partner says is left of its limit (0 to 1e12 tokens), and never raises it. `tokens` is what
   * the throttle has then. If another transaction has the throttle locked for longer than 250 ms, nothing is lowered.
   *
   * Without `resetAt` a bucket gains on by its own rate, and what a window was lowered by counts as spent now. With
   * `resetAt`, a Date to come by the database's clock, no more than `remaining` goes until then. What a bucket gains until
   * then is taken off as well, so it may be in debt, but for its `per` at most. A calendar window goes by its calendar. If
   * `resetAt` has passed, nothing is lowered. It leaves no row in the audit, because each answer of a partner may call it.
   *
   * `key` is the scope key; a throttle over the policy takes none. A key that no job has had gets a bucket, as by
   * {@link take}.
   *
   * @throws {ArgumentError} if the gate is no throttle, the key does not fit its scope, or only a job can tell its numbers
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { lowered, tokens } = await utils.sync({ policy: "fetch_endpoint", gate: "all", remaining: 3 });
   */
  sync(options: ByPolicy<LimiterTarget & Remaining>): Promise<Synced>;

  /**
   * Why a job, or a partition's next job, waits: the reason and its gate, and when that ends. It also says what each gate
   * has left, who occupies its slots, who stopped or limited the job, and its place in line. `sentence` says it in words.
   * The job's `id` is Graphile Worker's or the staged one.
   *
   * A job that has finished is `ended` if its policy has the option `history`, and `sentence` says how and what it had
   * waited for. Else it is `unknown`, because Graphile Worker keeps none.
   *
   * @throws {ArgumentError} unless either `id` or `policy` and `partition` are given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example console.log((await utils.explain({ policy: "fetch_endpoint", partition: "ep1" })).sentence);
   */
  explain(options: ByPolicy<{ id: string } | PartitionTarget>): Promise<Explanation>;

  /**
   * What happened to jobs, of policies with the option `history`: when each was added, due, admitted, started and ended, and
   * how it ended. `waited` says for how long it waited for which reason. Jobs that have not ended come first, then the last
   * to end.
   *
   * @throws {ArgumentError} for an option that is wrong
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example
   * const jobs = await utils.history({ policy: "fetch_endpoint", outcome: "failed", since: new Date(Date.now() - 3_600_000) });
   * for (const { id, endedAt, error, waited } of jobs) console.log(id, endedAt, error, waited.throttle_empty);
   */
  history(query?: ByPolicy<HistoryQuery>): Promise<readonly JobHistory[]>;

  /**
   * The job groups whose callback has not been added yet, in the order of their ids: how many of their jobs have ended, and
   * how. For the next page give the last id as `after`. With `group` it is that group alone, with a page of the jobs that are
   * left and where they stand. It is empty if the group is not open any more.
   *
   * @throws {ArgumentError} if `group` or `after` is no id, or `limit` no whole number from 1
   * @example const [group] = await utils.groups({ group: "7", limit: 20 }); // group?.jobs
   */
  groups(query?: GroupsQuery): Promise<readonly OpenGroup[]>;

  /**
   * What is wrong, the worst first, and what mends it. It looks at the schema, the server, the workers and the policies. An
   * empty list: nothing was found. docs/health.md explains each finding.
   *
   * It only reads, and never counts jobs. It looks for a second longer if a slot seems to be lost. A check that fails, as
   * for want of a right, is a finding `not-checked`. It also answers if the schema is missing, older or newer.
   *
   * @throws {ArgumentError} for an unknown threshold
   * @throws {MissingGrantError} unless the role is the one that owns the schema
   * @example for (const { id, sentence, mend } of await utils.doctor()) console.log(`${id}: ${sentence}\n${mend}`);
   */
  doctor(options?: DoctorOptions): Promise<readonly Finding[]>;

  /**
   * The figures of all policies in Prometheus's text format. docs/metrics.md explains each. One process tells those of
   * the whole database, so let Prometheus scrape one, or each under a job name of its own.
   *
   * Workers add up what happened twice a minute. If the role may write, a call does so first, so that its totals are of now.
   *
   * @throws {MissingGrantError} if the role may not call the SQL function `metrics`
   * @example const lines = (await utils.metrics()).split("\n"); // dispatch_policy_admitted_total{policy="fetch_endpoint"} 17
   */
  metrics(): Promise<string>;

  /**
   * The state of policies and worker pools. It shows how many jobs wait or are in flight, which policies are paused or
   * switched off, and which workers are alive. With `policy` it shows only that policy, but all workers. `pauseOfAll` is the
   * pause of all policies, if there is one.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { policies, workers } = await utils.status();
   */
  status(options?: ByPolicy<{ policy?: string | undefined }>): Promise<Status>;

  /**
   * The state of partitions, in the order of their keys, 100 unless `limit` says otherwise. For the next page give the last
   * key as `after`. Partitions of several policies with one key are never split: a page may have some more than `limit`.
   *
   * @throws {ArgumentError} if `limit` is no whole number from 1
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const page = await utils.partitions({ policy: "fetch_endpoint", search: "ep", limit: 20 });
   */
  partitions(query?: ByPolicy<PartitionsQuery>): Promise<readonly PartitionStatus[]>;

  /**
   * Switches a policy off, whatever its declaration says: jobs are added past it, and ticks admit its staged jobs past its
   * gates. It stays off through restarts and deploys, until {@link enable}. `changed` is 0 if it was off.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.disable({ policy: "fetch_endpoint", reason: "partner has no limits today", by: "ana" });
   */
  disable(options: ByPolicy<{ policy: string } & Why & DryRun>): Promise<Changed & Reach>;

  /**
   * Switches a policy on, whatever its declaration says: its gates apply again. `changed` is 0 if it was on.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.enable({ policy: "fetch_endpoint" });
   */
  enable(options: ByPolicy<{ policy: string } & Why & DryRun>): Promise<Changed & Reach>;

  /**
   * One admission pass for one policy, or for each, one after the other. Each policy has a budget of its own. Workers tick
   * by themselves: this is for scripts and tests. `ahead`, the bound on jobs admitted ahead of the workers, does not apply.
   *
   * With `shard` it ticks only that shard. `now` is for tests: it replaces the database's clock, and only the owner of the
   * schema may give it. `nextEligibleAt` says when a job may be admitted next; null: not before something changes.
   *
   * @throws {ArgumentError} if anybody but the schema's owner gives `now`
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { admitted, denied, nextEligibleAt } = await utils.tick({ policy: "fetch_endpoint" });
   */
  tick(options?: ByPolicy<TickOptions>): Promise<TickResult>;

  /**
   * One repair pass, as workers make every `sweepInterval`. Every count of `repaired` is zero in a healthy run. Dead worker
   * pools are found by workers' sweeps only: here `pools` and `unlocked` are always 0.
   *
   * @throws {AggregateError} naming the steps that failed, after all the others were done
   * @example const { repaired } = await utils.sweep();
   */
  sweep(): Promise<{ repaired: Repaired }>;

  /**
   * Graphile Worker's `completeJobs`: deletes jobs without running them. It also accepts staged ids, and gives the jobs'
   * slots back. Locked jobs stay. Resolves to the jobs that it deleted.
   *
   * @example await utils.completeJobs([job.id]);
   */
  completeJobs(ids: string[]): Promise<DbJob[]>;

  /**
   * Graphile Worker's `permanentlyFailJobs`: fails jobs for good. It also accepts staged ids: a staged job is handed to
   * Graphile Worker as failed, under an id of its own. Locked jobs stay. Resolves to the jobs that it failed.
   *
   * @example await utils.permanentlyFailJobs([job.id], "cancelled by the customer");
   */
  permanentlyFailJobs(ids: string[], reason?: string): Promise<DbJob[]>;

  /**
   * Graphile Worker's `rescheduleJobs`: changes when and how jobs run. It also accepts staged ids. A staged job keeps
   * waiting for its gates. A job that was admitted frees its slots, and passes its gates again. Locked jobs stay.
   * Resolves to the changed jobs.
   *
   * @throws {ArgumentError} if Graphile Worker cannot store `priority`, `attempts` or `maxAttempts`
   * @example await utils.rescheduleJobs([job.id], { runAt: new Date(Date.now() + 60_000), priority: 5 });
   */
  rescheduleJobs(ids: string[], options: RescheduleOptions): Promise<DbJob[]>;

  /**
   * Graphile Worker's `cleanup`, which keeps the task identifiers of all policies that the database has, and of `dispatch_policy_tick`.
   * Default: `{ tasks: ["GC_JOB_QUEUES"] }`.
   *
   * @example await utils.cleanup({ tasks: ["GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"] });
   */
  cleanup(options?: CleanupOptions): Promise<void>;

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

  /**
   * Removes this package from the database. It switches every policy off, and unstages all waiting jobs
   * as {@link unstage} does. It removes the jobs of the task `dispatch_policy_tick`. Then it drops the schema with all that
   * depends on it. Jobs in flight stay in Graphile Worker, and run as plain jobs.
   *
   * Stop the workers that have the preset before. It refuses while one lives, unless `force` is true: such workers then fail
   * the jobs that they start. Each step is a transaction, so a crash in between loses nothing, and the next call goes on.
   * Afterwards, calls of this package's functions throw a {@link SchemaVersionError}. Only the owner of the schema may call
   * it.
   *
   * @throws {RemovalError} while worker pools live, if Graphile Worker refuses a job, or if tables stay locked
   * @example const { unstaged, parked } = await utils.uninstall();
   */
  uninstall(options?: UninstallOptions): Promise<Uninstalled>;
}
