import type { Duration } from "../duration.ts";
import type { Gate, GateFactories, Value } from "../gates/index.ts";
import type { BackoffFunction } from "./backoff.ts";
import type { JobDefaults, JobInfo } from "./job.ts";
import type { SchemaInput, SchemaOutput, StandardSchema } from "./standard-schema.ts";

type TaskPayload<Id> = Id extends keyof GraphileWorker.Tasks ? GraphileWorker.Tasks[Id] : unknown;

/** What a job is added with: by the schema, else by GraphileWorker.Tasks, else unknown. */
export type PayloadIn<Id, S> = [S] extends [StandardSchema] ? SchemaInput<S> : TaskPayload<Id>;
/** What `context` and the task get: by the schema, else by GraphileWorker.Tasks, else unknown. */
export type PayloadOut<Id, S> = [S] extends [StandardSchema] ? SchemaOutput<S> : TaskPayload<Id>;

/** The dotted paths of P that end in a string or a number ("a", "a.b"); any string where P is unknown. */
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
 * Paths are checked against a schema only, not against GraphileWorker.Tasks: this type is evaluated before S is known,
 * and looking into Tasks then makes `Tasks { x: PolicyPayload<typeof x> }` a circle (TS7022, in 5.9 and 7).
 */
type SchemaPath<S> = [S] extends [StandardSchema] ? PayloadPath<SchemaInput<S>> : string;

/**
 * What `definePolicy` takes. Write `payload` and `context` first: TypeScript infers from left to right, and what stands
 * above `context` cannot know what it returns. Anything not listed here is refused, with the nearest right name.
 */
export interface PolicyOptions<Id, S, C> {
  /**
   * The task identifiers the policy governs, which then share its partitions and gates; the first argument of
   * `definePolicy` is then only the policy's name. At least one, no two alike, each of at most 128 characters. Default:
   * the one identifier that the first argument names.
   */
  tasks?: readonly string[] | undefined;
  /**
   * The payload's schema: any Standard Schema (zod 3.24+, zod 4, valibot, arktype) that answers synchronously. A job
   * whose payload fails it is refused when it is added. The payload itself is stored as it was given; `context` and
   * `policy.task` see the schema's answer. Default: payloads are not checked.
   */
  payload?: S;
  /**
   * Works out the values that keys, limits, weight and cost read. Synchronous; returns an object of JSON values, since
   * it is stored with the partition, so that limits can be worked out anew when the policy changes. Default: `{}`.
   */
  context?: (payload: PayloadOut<Id, S>, job: JobInfo) => C;
  /**
   * How the policy's jobs are split: each key is a partition with limits and a fair share of its own. Required.
   *
   * - a function of the context. It gives a string or a finite number; a number becomes text, so that 5 and "5" are one
   *   partition. Needs `context`.
   * - a dotted path into the payload as it was given, `"endpoint.id"`, which plain SQL can evaluate too.
   * - several paths, `["accountId", "endpoint.id"]`. The key is then the JSON array of their texts, `["a1","e7"]`: a
   *   separator would be ambiguous, JSON's quotes are not. (An array of one path is that path.)
   *
   * A key of more than 1,024 bytes, a missing one, null and NaN are refused when the job is added.
   */
  partitionBy: SchemaPath<S> | readonly SchemaPath<S>[] | ((ctx: C) => string | number);
  /**
   * Which shard a partition belongs to: shards are ticked apart from each other, each by a process of its own. A
   * non-empty string of at most 255 characters; the first job of a partition decides. Default: `"default"`.
   */
  shardBy?: ((ctx: C) => string) | undefined;
  /** The partition's share when there is too little for all, in relation to other partitions. 1e-12 to 1e12; default 1. */
  weight?: Value<C, number> | undefined;
  /** The tokens a job takes from throttles. 0, or 1e-12 to 1e12; default 1. */
  cost?: Value<C, number> | undefined;
  /**
   * What limits the partitions; a job goes when every gate lets it. A function that gets the gates with this policy's
   * context filled in, or an array of them. Names must differ. Default: none, which leaves fairness.
   */
  gates?: readonly Gate<C>[] | ((gate: GateFactories<NoInfer<C>>) => readonly Gate<NoInfer<C>>[]) | undefined;
  /**
   * Fair shares between partitions: what a partition was admitted lately counts against it, half as much after each
   * `halfLife` (longer than 0). `null`: no shares; jobs go by priority, time and age, whatever their partition, and
   * weights count for nothing. Default: the preset's, 1 minute unless changed.
   *
   * `by: "work"` shares the workers' time instead of the number of jobs: a job counts for the seconds it runs. At its
   * admission that is what the partition's jobs took lately (1 s before any has ended), and its end settles the
   * difference. For policies whose tenants differ in how long their jobs run. Default: `"jobs"`.
   *
   * @example
   * definePolicy("report", { partitionBy: "tenant", fairness: { by: "work", halfLife: "5 minutes" } })
   */
  fairness?:
    | { halfLife: Duration; by?: "jobs" | "work" | undefined }
    | { halfLife?: Duration | undefined; by: "jobs" | "work" }
    | null
    | undefined;
  /** The most jobs one tick admits for this policy. A whole number, 1 or more. Default, and null: the preset's, none. */
  tickAdmissionBudget?: number | null | undefined;
  /** The most jobs one tick admits for one partition. A whole number, 1 or more. Default, and null: the preset's, 100. */
  admissionBatchSize?: number | null | undefined;
  /** Defaults for the policy's jobs. */
  job?: JobDefaults | undefined;
  /**
   * What happens to a job that failed. `"restage"`, the default: it waits in staging, holds no slot, and passes the
   * gates again. `"bypass"`: Graphile Worker retries it by itself, past the gates.
   */
  retries?: "restage" | "bypass" | undefined;
  /**
   * What happens to a job that was added past the policy: by `graphile_worker.add_job` in a trigger or in another
   * language, or by the worker's crontab. It is noticed when it starts.
   *
   * - `"enforce"`, the default: it goes on when the gates have room and nobody waits before it; else a copy is staged
   *   and admitted in its turn, and the original completes without having run (no failure, no lost attempt).
   * - `"run"`: it runs at once, past the gates, and counts in flight.
   * - `"reject"`: it is set aside in staging, to be looked at, rescheduled or removed.
   */
  unmanaged?: "enforce" | "run" | "reject" | undefined;
  /**
   * When a failed job is due again: `(error, attempt, job) => "30 seconds"`, or `fixed`, `exponential`, `list`. `false`
   * fails the job for good. Default: Graphile Worker's own, e^attempt seconds.
   */
  backoff?: BackoffFunction | undefined;
  /**
   * Stops a partition whose jobs keep failing: after `failures` failures within `within` (counted from the first of
   * them) it is held for `cooldown`. Then one job goes first; when it succeeds the others follow, when it fails the
   * partition is held for `cooldown` again. Default: none.
   *
   * @example breaker: { failures: 5, within: "1 minute", cooldown: "30 seconds" }
   */
  breaker?: { failures: number; within: Duration; cooldown: Duration } | undefined;
  /**
   * Bounds the backlog: at most so many jobs staged, of one `partition` and of the whole `policy` (whole numbers, 1 or
   * more; at least one of the two). What happens to one more is `whenFull`:
   *
   * - `"reject"`, the default: adding it throws {@link BacklogFullError}, in the producer's transaction, and stages none
   *   of the call's jobs.
   * - `"drop_newest"`: it is not staged; what `addJob` returns has `dropped: true`.
   * - `"drop_oldest"`: it is staged, and the job that was staged first is dropped.
   *
   * Drops are counted (`dropped_total` of the view `partitions`) and told (`dispatchPolicy:drop`). Producers at the same
   * time may together go past the bound by what they have not committed; with `strict` they wait for each other, per
   * partition, until their transactions end. Retries are not held to the bound. A partition's jobs are counted at each
   * call, which takes the longer the more there may be. Default: no bound.
   *
   * @example maxPending: { partition: 1000, policy: 100_000, whenFull: "drop_oldest" }
   */
  maxPending?:
    | {
        partition?: number | undefined;
        policy?: number | undefined;
        whenFull?: "reject" | "drop_oldest" | "drop_newest" | undefined;
        strict?: boolean | undefined;
      }
    | undefined;
  /**
   * What happens to jobs that the gates deny when they are looked at. `"wait"`, the default: they stay. `"skip"`: they
   * are dropped, counted and told as above; for work that is worthless later. A retry waits either way, and so does what
   * only waits for a worker, for its time, or for the end of a pause.
   */
  whenBusy?: "wait" | "skip" | undefined;
  /**
   * Whether a job that throws `RetryAfter` gets its attempt back: "come back later" is then no failure of the job's, and
   * it is retried however often it hears so. Needs `retries: "restage"`. Default `false`.
   */
  giveBackAttempt?: boolean | undefined;
  /**
   * While old and new processes run side by side, the higher version's definition holds; of equal versions that of the
   * process which started last. A whole number, 0 or more; default 0. Raise it also when a function's outcome changes
   * while its text does not, as when it reads a constant from another module.
   */
  version?: number | undefined;
  /**
   * After how long a running job gives its slots back though it has not ended, for tasks that may hang. It goes on
   * running, and counts no longer; its end then gives nothing back. Longer than 0, and longer than any job takes that is
   * well; a sweep looks, so it may be one `sweepInterval` later. It counts from the job's start, which each of the policy's
   * jobs notes in the database: a query that other policies' first attempts do not cost. Default: none, a job keeps its
   * slots until it ends.
   */
  slotTimeout?: Duration | undefined;
  /** `false`: jobs are added past the policy, and ticks empty its staging ungated. Default `true`. */
  enabled?: boolean | undefined;
}
