import type { Duration } from "../duration.ts";
import type { Gate, GateFactories, Value } from "../gates/index.ts";
import type { BackoffFunction } from "./backoff.ts";
import type { JobDefaults, JobInfo } from "./job.ts";
import type { SchemaInput, SchemaOutput, StandardSchema } from "./standard-schema.ts";

/** The type that GraphileWorker.Tasks has for a task, else unknown. */
type TaskPayload<Id> = Id extends keyof GraphileWorker.Tasks ? GraphileWorker.Tasks[Id] : unknown;

/** The type of the payload that a job is added with: from the schema, else from GraphileWorker.Tasks, else unknown. */
export type PayloadIn<Id, S> = [S] extends [StandardSchema] ? SchemaInput<S> : TaskPayload<Id>;
/** The type of the payload that `context` and the task get: from the schema, else from GraphileWorker.Tasks, else unknown. */
export type PayloadOut<Id, S> = [S] extends [StandardSchema] ? SchemaOutput<S> : TaskPayload<Id>;

/** The dotted paths of P that end in a string or a number ("a", "a.b"). Any string if P is unknown. */
export type PayloadPath<P> = unknown extends P
  ? string
  : P extends object
    ? {
        [K in keyof P & string]: P[K] extends string | number
          ? K
          : P[K] extends readonly unknown[]
            ? never
            : P[K] extends object
              ? `${K}.${PayloadPath<P[K]>}`
              : never;
      }[keyof P & string]
    : never;

/**
 * Paths are checked against a schema only, not against GraphileWorker.Tasks. TypeScript evaluates this type before S is
 * known; if it read Tasks, `Tasks { x: PolicyPayload<typeof x> }` would be a circle (TS7022, in 5.9 and 7).
 */
type SchemaPath<S> = [S] extends [StandardSchema] ? PayloadPath<SchemaInput<S>> : string;

/**
 * The options of `definePolicy`. Write `payload` and `context` first: TypeScript infers from left to right, so options
 * above `context` cannot know its type. An unknown option is refused, with the nearest right name.
 */
export interface PolicyOptions<Id, S, C> {
  /**
   * The task identifiers that the policy governs. They share its partitions and gates, and the first argument of
   * `definePolicy` is only the policy's name. At least one, all different, each of at most 128 characters.
   * @default the first argument of `definePolicy`
   */
  tasks?: readonly string[] | undefined;
  /**
   * The payload's schema: any synchronous Standard Schema (zod 3.24+, zod 4, valibot, arktype). A job whose payload
   * fails it is refused when it is added.
   *
   * The payload is stored as it was given. `context` and `policy.task` get the schema's output. The schema sees what JSON
   * stores: a Date is a text, for which `z.coerce.date()` is right, and not `z.date()`.
   * @default none
   */
  payload?: S;
  /**
   * Works out the values that keys, limits, weight and cost read. Synchronous. Returns an object of JSON values, because the
   * partition stores it: limits are worked out from it again when the policy changes.
   *
   * Its type may be an `interface`. An integer in it that is beyond 2^53 - 1 is refused, as in a key.
   * @default `{}`
   */
  context?: ((payload: PayloadOut<Id, S>, job: JobInfo) => C) | undefined;
  /**
   * How the policy's jobs are split. Each key is a partition with limits and a fair share of its own. The key comes
   * from a path in the payload, from several paths, or from a function of the context.
   *
   * - a function of the context. It gives a string or a finite number; a number becomes text, so that 5 and "5" are one
   *   partition. Needs `context`.
   * - a dotted path into the payload as it was given, `"endpoint.id"`. SQL can evaluate it without a process.
   * - several paths, `["accountId", "endpoint.id"]`. The key is then the JSON array of their texts, `["a1","e7"]`,
   *   because a mere separator would be ambiguous. An array of one path is that path.
   *
   * A key of more than 1,024 bytes, a missing one, null and NaN are refused when the job is added. So is a number that
   * JavaScript may have rounded, because two tenants might share it: an integer beyond 2^53 - 1, or a fraction of more
   * than 15 digits. Make it a text where the payload is written.
   */
  partitionBy: SchemaPath<S> | readonly SchemaPath<S>[] | ((ctx: C) => string | number);
  /**
   * The shard that a partition belongs to. A loop of its own ticks each shard. A text of at most 255 characters.
   *
   * The loop may be in another process. The first job of a partition decides.
   * @default "default"
   */
  shardBy?: ((ctx: C) => string) | undefined;
  /**
   * The partition's share in relation to other partitions, if not all jobs may go. 1e-12 to 1e12.
   * @default 1
   */
  weight?: Value<C, number> | undefined;
  /**
   * The class of a job. Jobs of a lower class go first, whatever the shares; fair shares decide within a class. A whole number,
   * 0 to 5.
   *
   * Jobs of one partition may be of several classes, and share its gates, pauses and holds. A later class without a `classShare`
   * may wait without end. What was admitted in one class does not count against a partition's share in another. Not with
   * `fairness: null`, where `priority` does it, and not with `order: "strict"`.
   * @default every job is of class 0
   * @example
   * definePolicy("report", {
   *   context: (payload) => payload as { tenantId: string; interactive: boolean },
   *   partitionBy: (ctx) => ctx.tenantId,
   *   class: (ctx) => (ctx.interactive ? 0 : 1),
   *   classShare: { 1: 0.1 },
   * })
   */
  class?: ((ctx: C) => number) | undefined;
  /**
   * The least part of what a limit admits that goes to a class while jobs of it wait for that limit: with `{ 1: 0.1 }` every
   * tenth job is of class 1. By class, 1 to 5: a number from 0.001, with a sum below 1.
   *
   * Of several classes each has its part but for two jobs at most. Not with a shared limit. Where jobs of a gate differ in cost
   * it is approximate.
   * @default none
   */
  classShare?: Partial<Record<1 | 2 | 3 | 4 | 5, number>> | undefined;
  /**
   * The tokens a job takes from throttles. 0, or 1e-12 to 1e12.
   *
   * If it is an estimate, the run says what it cost: `helpers.dispatchPolicy.settle`.
   * @default 1
   */
  cost?: Value<C, number> | undefined;
  /**
   * The limits of the policy: a job is admitted when every gate has room for it. A function that gets the gates with
   * this policy's context filled in, or an array of gates. Names must differ.
   * @default none
   */
  gates?: readonly Gate<C>[] | ((gate: GateFactories<NoInfer<C>>) => readonly Gate<NoInfer<C>>[]) | undefined;
  /**
   * Fair shares between partitions, by their recent admissions. `null`: no shares; jobs go by priority, time and age, whatever
   * their partition.
   *
   * An admission counts against its partition, half as much after each `halfLife`. With `null`, weights have no effect. `by: "work"` shares the workers' time instead of the number of jobs: a job counts for the seconds it runs. At its
   * admission it counts as much as the partition's recent jobs (1 s before any has ended), and its end settles the
   * difference. Use it if some tenants' jobs run longer than others'.
   *
   * @default `by: "jobs"`, with the preset's `defaults.halfLife`
   * @example
   * definePolicy("report", { partitionBy: "tenant", fairness: { by: "work", halfLife: "5 minutes" } })
   */
  fairness?:
    | {
        /**
         * After this time, a past admission counts half as much. Longer than 0. Required if `by` is not set.
         * @default the preset's `defaults.halfLife`
         */
        halfLife: Duration;
        /**
         * The quantity that is shared: the number of jobs, or the seconds that they run.
         * @default "jobs"
         */
        by?: "jobs" | "work" | undefined;
      }
    | { halfLife?: Duration | undefined; by: "jobs" | "work" }
    | null
    | undefined;
  /**
   * The order of a partition's jobs. `"strict"`: one at a time, and a job that fails keeps its place until it has succeeded or
   * failed for good. `"deadline"`, or a deadline of the context: the earliest deadline goes first.
   *
   * Of `"strict"`, for jobs of which each builds on the one before, as with the changes of one record:
   *
   * - The order is the usual one: `priority`, then `runAt`, then that of adding. No job passes one that has started once,
   *   whatever its priority. A job whose `runAt` is ahead has its place by that time, and blocks nobody until then.
   * - The policy gets the gate `strict_order`, a `concurrency` of 1 for each partition. Nobody can change its limit.
   * - A job that Graphile Worker refuses blocks its partition as well. `remove` lets the others go.
   * - Two transactions that add jobs at the same time have no order.
   *
   * Options that would break the order are refused: `retries: "bypass"`, `unmanaged: "run"`, any `whenBusy` but `"wait"`, and a
   * `concurrency` of more than 1 over the partition. With `slotTimeout` the next job goes after that time, although the one
   * before may still run. An operator's `admit` goes past the order as past the gates. A policy that is switched off has no
   * order.
   *
   * Of `"deadline"`: a job's deadline is the time at which it expires (`expiresAt`, `expiresAfter`). If jobs are to run late as
   * well, a function of the context gives it, as in `{ deadline: (ctx) => ctx.dueBy }`. It returns a `Date`, a text such as
   * `"2026-12-01T09:00:00Z"`, or null. Null means the time at which the job expires, if it has one. Jobs without a deadline go
   * last, in the usual order. Of equal deadlines, the job that was added first goes first. Priorities do not count between
   * jobs with deadlines. A retry keeps its deadline.
   *
   * The order decides within a partition. Between partitions, fair shares do. With `fairness: null` the earliest deadline of all
   * of the policy goes first. Graphile Worker fetches what was admitted by priority and time of admission.
   * @default none
   * @example order: "strict"
   * @example
   * definePolicy("report", {
   *   context: (payload) => payload as { tenantId: string; dueBy: string | null },
   *   partitionBy: (ctx) => ctx.tenantId,
   *   order: { deadline: (ctx) => ctx.dueBy },
   * })
   */
  order?:
    | "strict"
    | "deadline"
    | {
        /** When a job should have started: a `Date`, a text in ISO 8601 with its offset, or null for none of its own. */
        deadline: (ctx: C) => Date | string | null | undefined;
      }
    | undefined;
  /**
   * The most jobs one tick admits for this policy. A whole number, 1 or more. `null` means the default.
   * @default the preset's `defaults.tickAdmissionBudget`
   */
  tickAdmissionBudget?: number | null | undefined;
  /**
   * The most jobs one tick admits for one partition. A whole number, 1 or more. `null` means the default.
   * @default the preset's `defaults.admissionBatchSize`
   */
  admissionBatchSize?: number | null | undefined;
  /**
   * How many jobs of this policy may be in flight beyond the worker slots. A duration: as many as the workers finish in
   * that time. A whole number, 0 or more: that many. `null`: no bound.
   * @default the preset's `defaults.ahead`
   */
  ahead?: number | Duration | null | undefined;
  /**
   * Defaults for the policy's jobs.
   * @default each option's own
   */
  job?: JobDefaults | undefined;
  /**
   * How a failed job is retried. `"restage"`: it waits in staging, occupies no slot, and passes the gates again.
   * `"bypass"`: Graphile Worker retries it by itself, past the gates.
   * @default "restage"
   */
  retries?: "restage" | "bypass" | undefined;
  /**
   * How the package treats a job that was added past the policy, when it starts. `"enforce"`: it passes the gates like any
   * other. `"run"`: it runs at once, past the gates. `"reject"`: it is quarantined.
   *
   * A trigger, another language or the worker's crontab may add such jobs. With `"enforce"`, the job runs if the gates have room and no job waits before it. Otherwise a copy is staged and admitted in
   * its turn, and the original completes without having run (no failure, no lost attempt). With `"run"`, the job counts in
   * flight. With `"reject"`, operators can inspect, reschedule or remove it in staging.
   *
   * @default "enforce"
   */
  unmanaged?: "enforce" | "run" | "reject" | undefined;
  /**
   * How long a failed job waits: `(error, attempt, job) => "30 seconds"`, or `fixed`, `exponential`, `polynomial`, `list`.
   * A function that returns `false` fails the job for good.
   * @default Graphile Worker's own, e^attempt seconds
   */
  backoff?: BackoffFunction | undefined;
  /**
   * Holds a partition for `cooldown` after `failures` failures within `within`, counted from the first of them. Then one job
   * goes first.
   *
   * If it succeeds, the others follow; if it fails, the partition is held for `cooldown` again.
   *
   * @default none
   * @example breaker: { failures: 5, within: "1 minute", cooldown: "30 seconds" }
   */
  breaker?:
    | {
        /** The number of failures of one partition that starts a hold. A whole number, 1 or more. */
        failures: number;
        /** The time in which failures count together, from the first of them. Longer than 0. */
        within: Duration;
        /** The length of the hold. Longer than 0. */
        cooldown: Duration;
      }
    | undefined;
  /**
   * Bounds the backlog: the most staged jobs of one `partition`, and of the whole `policy` (at least one of the two).
   *
   * `whenFull` says how a full backlog treats a further job. The bound does not apply to retries. Each call counts the partition's jobs, which takes longer the higher the bound
   * is.
   *
   * @default no bound
   * @example maxPending: { partition: 1000, policy: 100_000, whenFull: "drop_oldest" }
   */
  maxPending?:
    | {
        /**
         * The most staged jobs of one partition. A whole number, 1 or more.
         * @default no bound
         */
        partition?: number | undefined;
        /**
         * The most staged jobs of the whole policy. A whole number, 1 or more.
         * @default no bound
         */
        policy?: number | undefined;
        /**
         * How a full backlog treats a further job. `"reject"`: adding it throws {@link BacklogFullError}.
         * `"drop_newest"`: it is dropped. `"drop_oldest"`: it is staged, and the job that was staged first is dropped.
         *
         * The error is thrown in the producer's transaction, and none of the call's jobs is staged. For a new job that
         * is dropped, the result of `addJob` has `dropped: true`. Drops are counted (`dropped_total` of the view
         * `partitions`) and emitted (`dispatchPolicy:drop`).
         * @default "reject"
         */
        whenFull?: "reject" | "drop_oldest" | "drop_newest" | undefined;
        /**
         * Concurrent producers may exceed the bound by their uncommitted jobs. `true`: they wait for each other until
         * their transactions end.
         *
         * The producers of one partition wait for each other. If `policy` is set, all producers of the policy do.
         * @default false
         */
        strict?: boolean | undefined;
      }
    | undefined;
  /**
   * How a pass treats jobs that the gates deny. `"wait"`: they wait. `"skip"`: they are dropped. `{ delay: "30 seconds" }`: they
   * are postponed by that time, several evenly up to twice that.
   *
   * Use `"skip"` for work that is worthless later. Such jobs are counted, and emitted as `dispatchPolicy:drop`. Jobs that come
   * during a delay go before those that were postponed. Some jobs always wait: retries, and jobs that only wait for a worker,
   * for their time, or for the end of a pause.
   * @default "wait"
   */
  whenBusy?:
    | "wait"
    | "skip"
    | {
        /** How long a job is postponed each time that it meets its gates busy. 1 second at least. */
        delay: Duration;
      }
    | undefined;
  /**
   * For work that is worthless later: a job that is not admitted in this time is dropped. Longer than 0.
   *
   * It is never admitted later. Drops are counted, and emitted as `dispatchPolicy:expire`. The time counts from when the job is due, and at least from when it is added. It bounds the wait for the first start. A
   * job that has started once does not expire: its retries go on. A job's own `expiresAt` or `expiresAfter` takes
   * precedence.
   * @default none
   * @example expiresAfter: "15 minutes"
   */
  expiresAfter?: Duration | undefined;
  /**
   * Puts the adds of one job key together: each moves the job to `wait` from now. At the latest it is due `maxWait` after the
   * first.
   *
   * So a burst of adds becomes one job, also if the burst does not end. It applies to jobs that are added with a `jobKey`, with
   * `jobKeyMode: "replace"`, and without `runAt` and `wait`. A job's own `debounce` takes precedence. The newest payload counts,
   * and arrays are merged. Once the job is admitted, the next add begins anew.
   * @default none
   * @example debounce: { wait: "5 seconds", maxWait: "1 minute" }
   */
  debounce?:
    | {
        /** How long after the newest add of its key a job is due. Longer than 0. */
        wait: Duration;
        /** How long after the first add of its key it is due at the latest. Not shorter than `wait`. */
        maxWait: Duration;
      }
    | undefined;
  /**
   * What a new job does to the run of an older one of its `jobKey`. `"keep"`: nothing. `"cancel"`: it cancels that run, and
   * waits for its end. `{ cancel: true, minRun: "10 seconds" }`: once the run has lasted for that time.
   *
   * Use it if only the newest job of a key counts. The run learns it by its `helpers.abortSignal`. One that ignores its signal
   * goes on, and the new job waits. Then that goes by the gates. With `minRun` a stream of new jobs lets some of them end. A
   * cancelled job that fails has failed for good. One that no worker has begun ends without running, and one that waits for its
   * retry is replaced. The cancel comes with the add, also if the new job is due later. A job's own `whenRunning` takes
   * precedence. It has no effect with the mode `"unsafe_dedupe"`, and with `unmanaged: "run"` none on jobs that come past the
   * policy.
   * @default "keep"
   * @example whenRunning: { cancel: true, minRun: "10 seconds" }
   */
  whenRunning?:
    | "keep"
    | "cancel"
    | {
        /** Always true: it cancels. */
        cancel: true;
        /** For how long a run that has begun may last before it is cancelled. 24 days at most. */
        minRun: Duration;
      }
    | undefined;
  /**
   * Remembers a job key for so long after its last job has completed. A job that is added with the key in that time is dropped.
   * Longer than 0, and 1 year at most.
   *
   * Drops are counted, and emitted as `dispatchPolicy:drop`. The result of `addJob` has `dropped: true` then, and the id of the earlier job. While a job of the key waits or runs,
   * `jobKeyMode` decides as always. A job that failed for good, or was removed, is not remembered. Each key is stored until
   * its time is over. Not with `retries: "bypass"`: a job that succeeds at such a retry would not be remembered.
   * @default none
   * @example uniqueFor: "1 hour"
   */
  uniqueFor?: Duration | undefined;
  /**
   * Records how many jobs come to each partition, second by second, for so long, so that `diff` can replay that time.
   *
   * Of each minute, a hundred partitions are recorded, and all others as one. A policy without this option records nothing, and
   * pays nothing.
   *
   * @default none
   * @example load: { keep: "1 hour" }
   */
  load?:
    | {
        /** For how long it is kept. A duration, 1 minute to 1 day. */
        keep: Duration;
      }
    | undefined;
  /**
   * Keeps what happened to each job, for so long after its end, for `utils.history`, the view `history` and `explain`.
   *
   * It has when each job was added, due, admitted, started and ended, how it ended, and for how long it waited for which reason.
   * A job takes some 0.12 ms more of the server's processor time then. A policy without this option keeps nothing.
   *
   * @default none
   * @example history: { keep: "7 days" }
   */
  history?:
    | {
        /** For how long it is kept after the job's end. A duration, 1 minute to 1 year. */
        keep: Duration;
      }
    | undefined;
  /**
   * Whether a job that throws `RetryAfter` gets its attempt back. Needs `retries: "restage"`.
   *
   * If so, "come back later" uses up no attempt, and the job is retried any number of times.
   * @default false
   */
  refundAttempt?: boolean | undefined;
  /**
   * The highest version that a live worker has is in force. A whole number, 0 or more.
   *
   * Of equal versions that of the worker that started last is. Raise it also if a function's result changes but not its text, for example because it reads a constant from another
   * module.
   * @default 0
   */
  version?: number | undefined;
  /**
   * For tasks that may hang: a running job frees its slots after this time, and goes on. Longer than any healthy job runs.
   *
   * It no longer counts then. Its end then frees nothing. A sweep checks the time, so the slots may come back one `sweepInterval` later. The
   * time counts from the job's start, which each job of the policy records in the database. This costs one query, which
   * first attempts of other policies do not need. If the worker's heartbeats come late, because the database was away or its
   * clock was set ahead, the time counts anew.
   * @default none
   */
  slotTimeout?: Duration | undefined;
  /**
   * For tasks that heed `helpers.abortSignal`: a run that lasts longer is told to end, and its attempt fails. Longer than 0,
   * shorter than `slotTimeout`, and 24 days at most.
   *
   * It fails with a `RunTimeoutError`, and the job is retried as after any other failure. The signal aborts for this run alone. Nobody can end a promise, so a task that ignores its signal goes on. Its attempt
   * fails when it settles, also if it returns, and its slot stays occupied until then. Only a `RetryAfter` that it throws
   * counts in place of the `RunTimeoutError`. After 10 seconds the worker warns. `slotTimeout` is the backstop: it gives
   * the slot back, and ends nothing. In a batch each part that settles after the time has failed.
   *
   * It counts from the call of the task, by the clock of the worker's process, and costs a timer a run.
   * @default none
   */
  runTimeout?: Duration | undefined;
  /**
   * `false`: jobs are added past the policy, and ticks admit its staged jobs past the gates. Operators can change it
   * while the system runs: `utils.disable`, in SQL `switch_policy`.
   * @default true
   */
  enabled?: boolean | undefined;
}
