import type { CleanupOptions, DbJob } from "graphile-worker";
import type { TickResult } from "../admit/tick.ts";
import type { Figure } from "../db/rolling-up.ts";
import type { Diff, DiffOptions } from "./diff.ts";
import type { DoctorOptions, Finding } from "./doctor.ts";
import type { Explanation } from "./explain.ts";
import type { ExportedJob, ExportOptions } from "./export.ts";
import type { GroupsQuery, OpenGroup } from "./groups.ts";
import type { HistoryQuery, JobHistory } from "./history.ts";
import type { Override } from "./limits.ts";
import type { PartitionStatus, PartitionsQuery } from "./look.ts";
import type { RescheduleOptions } from "./reschedule-jobs.ts";
import type { SearchQuery, SearchResult } from "./search.ts";
import type { Status } from "./status.ts";
import type { StopInForce } from "./stops.ts";
import type { Repaired } from "./sweep.ts";
import type { ByPolicy, PartitionTarget } from "./targets.ts";
import type { TickOptions } from "./tick.ts";
import type { Uninstalled, UninstallOptions } from "./uninstall.ts";
import type { Verbs } from "./verbs.ts";

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
export interface Operate extends Verbs {
  /**
   * Reads staged jobs with their payloads, in the order of their ids: by `ids`, or all of a policy or of one of its partitions.
   *
   * Failed jobs that wait for their retry are among them. Nothing changes, and jobs in flight are not read. It reads page by
   * page, at most 500 jobs or 8 MB each, so any number of jobs fits into memory. Each page is a transaction and a row of the
   * audit. Jobs that are staged meanwhile come at the end, and jobs that are admitted meanwhile may be missing. {@link pause}
   * the policy before if that matters.
   *
   * The way back is {@link addJobs} with each `spec`. They get new ids and no trace context, and the policy works out their partitions.
   *
   * @throws {ArgumentError} unless `ids` or `policy` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example for await (const { spec } of utils.export({ policy: "fetch_endpoint", partition: "ep1" })) console.log(spec);
   */
  export(options: ByPolicy<ExportOptions>): AsyncIterable<ExportedJob>;

  /**
   * What would have happened under another limit. It replays the recorded load of a policy with the option `load`: once under
   * the limits as they were, and once under the other one.
   *
   * It says for each partition how many jobs would have started, how many would wait, and for how long. No limit changes. The
   * replay runs this package's own SQL in a PGlite, in a thread of its own: install `@electric-sql/pglite`. A thousand jobs take
   * about 7 s of processor time, and twice that if a gate counts jobs in flight. Throttles are exact to the second in which a
   * job came. What depends on how long jobs run is a span. One end has runs that all take the mean of their partition, and the
   * other has runs as different as those recorded.
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
   * What is stopped now, of all policies or of one: pauses, holds and open breakers, with who stopped it, why, and until
   * when. A pause of all policies is the first row, with `policy` null.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example for (const { policy, partition, kind, until, by } of await utils.stops()) console.log(policy, partition, kind, until, by);
   */
  stops(options?: ByPolicy<{ policy?: string | undefined }>): Promise<readonly StopInForce[]>;

  /**
   * Why a job, or a partition's next job, waits: the reason and its gate, and when that ends.
   *
   * It also says what each gate has left, who occupies its slots, who stopped or limited the job, and its place in line.
   * `sentence` says it in words. The job's `id` is Graphile Worker's or the staged one. A job that has finished is `ended` if
   * its policy has the option `history`, and `sentence` says how and what it had waited for. Else it is `unknown`, because
   * Graphile Worker keeps none.
   *
   * @throws {ArgumentError} unless either `id` or `policy` and `partition` are given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example console.log((await utils.explain({ policy: "fetch_endpoint", partition: "ep1" })).sentence);
   */
  explain(options: ByPolicy<{ id: string } | PartitionTarget>): Promise<Explanation>;

  /**
   * What a text leads to, the best first: jobs by their ids and job keys, partitions by their keys and the values of their
   * contexts, policies, and errors.
   *
   * It also finds near matches: `note` says how they differ, such as by a blank at the end. Whole ids, keys and job keys are
   * always found. Parts, contexts and errors are looked for in 100,000 partitions and in the last 2,000 jobs of Graphile Worker
   * and of the history. `more` says if there are others.
   *
   * @throws {ArgumentError} if `query` is no text, or `max` no whole number from 1 to 100
   * @throws {MissingGrantError} if the role may not call the SQL function `search`
   * @example
   * const { hits } = await utils.search({ query: "cust-06" });
   * for (const { kind, policy, partition, jobId, state, note } of hits) console.log(kind, policy, partition, jobId, state, note);
   */
  search(query: SearchQuery): Promise<SearchResult>;

  /**
   * What happened to jobs, of policies with the option `history`: when each was added, due, admitted, started and ended, and how
   * it ended. `waited` says for how long it waited for which reason.
   *
   * Jobs that have not ended come first, then the last to end.
   *
   * @throws {ArgumentError} for an option that is wrong
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example
   * const jobs = await utils.history({ policy: "fetch_endpoint", outcome: "failed", since: new Date(Date.now() - 3_600_000) });
   * for (const { id, endedAt, error, waited } of jobs) console.log(id, endedAt, error, waited.throttle_empty);
   */
  history(query?: ByPolicy<HistoryQuery>): Promise<readonly JobHistory[]>;

  /**
   * The job groups whose callback has not been added yet, in the order of their ids: how many of their jobs have ended, and how.
   *
   * For the next page give the last id as `after`. With `group` it is that group alone, with a page of the jobs that are left
   * and where they stand. It is empty if the group is not open any more.
   *
   * @throws {ArgumentError} if `group` or `after` is no id, or `limit` no whole number from 1
   * @example const [group] = await utils.groups({ group: "7", limit: 20 }); // group?.jobs
   */
  groups(query?: GroupsQuery): Promise<readonly OpenGroup[]>;

  /**
   * What is wrong, the worst first, and what mends it.
   *
   * It looks at the schema, the server, the workers and the policies. An empty list: nothing was found. docs/operating.md
   * explains each finding. It only reads, and never counts jobs. It looks for a second longer if a slot seems to be lost. A
   * check that fails, as for want of a right, is a finding `not-checked`. It also answers if the schema is missing, older or
   * newer.
   *
   * @throws {ArgumentError} for an unknown threshold
   * @throws {MissingGrantError} unless the role is the one that owns the schema
   * @example for (const { id, sentence, mend } of await utils.doctor()) console.log(`${id}: ${sentence}\n${mend}`);
   */
  doctor(options?: DoctorOptions): Promise<readonly Finding[]>;

  /**
   * The figures of all policies in Prometheus's text format. docs/production.md#metrics lists them.
   *
   * One process tells those of the whole database, so let Prometheus scrape one, or each under a job name of its own. Workers
   * add up what happened twice a minute. If the role may write, a call does so first, so that its totals are of now.
   *
   * @throws {MissingGrantError} if the role may not call the SQL function `metrics`
   * @example const lines = (await utils.metrics()).split("\n"); // dispatch_policy_admitted_total{policy="fetch_endpoint"} 17
   */
  metrics(): Promise<string>;

  /**
   * What {@link metrics} says, as values: for a monitoring system with another format, and for {@link observeMetrics}.
   *
   * @throws {MissingGrantError} if the role may not call the SQL function `metrics`
   * @example for (const { name, labels, value } of await utils.figures()) console.log(name, labels.policy, value);
   */
  figures(): Promise<readonly Figure[]>;

  /**
   * The state of policies and worker pools.
   *
   * It shows how many jobs wait or are in flight, which policies are paused or switched off, and which workers are alive. With
   * `policy` it shows only that policy, but all workers. `pauseOfAll` is the pause of all policies, if there is one.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { policies, workers } = await utils.status();
   */
  status(options?: ByPolicy<{ policy?: string | undefined }>): Promise<Status>;

  /**
   * The state of partitions, in the order of their keys, 100 unless `limit` says otherwise.
   *
   * For the next page give the last key as `after`. Partitions of several policies with one key are never split: a page may have
   * some more than `limit`.
   *
   * @throws {ArgumentError} if `limit` is no whole number from 1
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const page = await utils.partitions({ policy: "fetch_endpoint", search: "ep", limit: 20 });
   */
  partitions(query?: ByPolicy<PartitionsQuery>): Promise<readonly PartitionStatus[]>;

  /**
   * One admission pass for one policy, or for each, one after the other.
   *
   * Each policy has a budget of its own. Workers tick by themselves: this is for scripts and tests. `ahead`, the bound on jobs
   * admitted ahead of the workers, does not apply. With `shard` it ticks only that shard. `now` is for tests: it replaces the
   * database's clock, and only the owner of the schema may give it. `nextEligibleAt` says when a job may be admitted next; null:
   * not before something changes.
   *
   * @throws {ArgumentError} if anybody but the schema's owner gives `now`
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { admitted, denied, nextEligibleAt } = await utils.tick({ policy: "fetch_endpoint" });
   */
  tick(options?: ByPolicy<TickOptions>): Promise<TickResult>;

  /**
   * One repair pass, as workers make every `sweepInterval`. Every count of `repaired` is zero in a healthy run.
   *
   * Dead worker pools are found by workers' sweeps only: here `pools` and `unlocked` are always 0.
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
   * Graphile Worker's `rescheduleJobs`: changes when and how jobs run. It also accepts staged ids.
   *
   * A staged job keeps waiting for its gates. A job that was admitted frees its slots, and passes its gates again. Locked jobs
   * stay. Resolves to the changed jobs.
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
   * Removes this package from the database.
   *
   * It switches every policy off, and unstages all waiting jobs as {@link unstage} does. It removes the jobs of the task
   * `dispatch_policy_tick`. Then it drops the schema with all that depends on it. Jobs in flight stay in Graphile Worker, and
   * run as plain jobs. Stop the workers that have the preset before. It refuses while one lives, unless `force` is true: such
   * workers then fail the jobs that they start. Each step is a transaction, so a crash in between loses nothing, and the next
   * call goes on. Afterwards, calls of this package's functions throw a {@link SchemaVersionError}. Only the owner of the schema
   * may call it.
   *
   * @throws {RemovalError} while worker pools live, if Graphile Worker refuses a job, or if tables stay locked
   * @example const { unstaged, parked } = await utils.uninstall();
   */
  uninstall(options?: UninstallOptions): Promise<Uninstalled>;
}
