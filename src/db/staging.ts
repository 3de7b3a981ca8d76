import type { JsonObject, ResolvedLimit } from "../policy/policy.ts";
import { parameters } from "./parameters.ts";
import type { Queryable, Statements } from "./statements.ts";

/**
 * One policy's part of a staging call. `policy` is null for jobs that are passed on. The header of
 * `sql/functions/add/enqueue.sql` documents the shapes.
 */
export interface StageBatch {
  policy: string | null;
  version: number;
  partitions: readonly PartitionState[];
  jobs: readonly StageJob[];
}

export interface PartitionState {
  key: string;
  /** See `laneOf`. */
  lane?: string | null;
  shard: string;
  context: JsonObject;
  weight: number;
  limits: readonly ResolvedLimit[];
}

/** Partitions as they are sent. If several have the same limits, only the first has them; the others name its place. */
function sharingLimits(partitions: readonly PartitionState[]): object[] {
  const places = new Map<readonly ResolvedLimit[], number>();
  return partitions.map(({ limits, ...partition }, place) => {
    const like = places.get(limits);
    if (like !== undefined) return { ...partition, like };
    places.set(limits, place);
    return { ...partition, limits };
  });
}

/** A batch as it is sent. Payloads of jobs without a policy are sent apart: the `json` type would refuse some of them. */
function asMessage(batch: StageBatch): object {
  if (batch.policy !== null) return { ...batch, partitions: sharingLimits(batch.partitions) };
  return { ...batch, jobs: batch.jobs.map(({ payload: _, ...job }, place) => ({ ...job, p: place + 1 })) };
}

function payloadsApart(batches: readonly StageBatch[]): string[] | null {
  const plain = batches.find(({ policy }) => policy === null);
  return plain ? plain.jobs.map(({ payload }) => JSON.stringify(payload)) : null;
}

export interface StageJob {
  n: number;
  task: string;
  p?: number;
  payload: unknown;
  queueName?: string | undefined;
  runAt?: Date | undefined;
  /** Seconds until it is due, in place of `runAt`. */
  wait?: number;
  /** If it is debounced: the most seconds from the first add of its key until it is due. */
  maxWait?: number;
  maxAttempts?: number | undefined;
  jobKey?: string | undefined;
  priority?: number | undefined;
  flags?: readonly string[] | undefined;
  cost?: number;
  expiresAt?: Date | undefined;
  /** In place of `expiresAt`: seconds from when it is due, or from now if that is later. */
  expiresAfter?: number;
  /** After how many seconds of its run an older job of its key is cancelled. Null: it is not. */
  cancelsAfter?: number | null;
  /** Whether the deadline is its place: its own one, else the time at which it expires. */
  byDeadline?: boolean;
  deadline?: Date;
  /** The W3C trace context of the span that adds the job. */
  traceparent?: string;
}

/** A group's callback as it is sent. `sql/comments/tables.sql` documents it at `_private_groups.callback`. */
export type GroupCallback = Omit<StageJob, "n" | "p" | "task" | "cost"> & {
  readonly identifier: string;
  /** Its policy; null: this process knows none. */
  readonly policy: string | null;
};

export interface StagedRow {
  n: number;
  staged: boolean;
  /** Null: it was dropped, because the backlog is full, or a job of its key kept it out. With a `job`: the earlier one. */
  id: string | null;
  task_identifier: string;
  queue_name: string | null;
  run_at: Date;
  max_attempts: number;
  job_key: string | null;
  priority: number;
  flags: readonly string[] | null;
  created_at: Date;
  policy: string | null;
  partition: string | null;
  shard: string | null;
  /** Of a job that was passed on, Graphile Worker's. Of a staged one: it was dropped, because its key is remembered. */
  job: Record<string, unknown> | null;
  /** It went in this call. */
  admitted: boolean;
  /** Of a job that was added in a group. */
  group_id?: string;
}

/** The columns of a row whose values were not sent with the job. */
const NEW = ["n", "staged", "id", "run_at", "created_at", "partition", "job", "admitted"] as const;
type NewRow = Pick<StagedRow, (typeof NEW)[number]>;

/** Completes a row, if the call has one batch, from the job that was sent. */
function asSent({ policy, partitions, jobs }: StageBatch, row: NewRow): StagedRow {
  const sent = jobs[row.n] as StageJob;
  const partition = sent.p === undefined ? undefined : partitions[sent.p];
  return {
    ...row,
    task_identifier: sent.task,
    queue_name: sent.queueName ?? null,
    max_attempts: sent.maxAttempts ?? 25,
    job_key: null,
    priority: sent.priority ?? 0,
    flags: sent.flags ?? null,
    policy,
    // without a partition: one that has the version in force works it out
    shard: row.partition === null ? null : (partition?.shard ?? null),
  };
}

export type JobKeyMode = "replace" | "preserve_run_at" | "unsafe_dedupe";

export interface KeylessJob {
  staged_id: string;
  partition_key: string | null;
  task_identifier: string;
  payload: unknown;
  queue_name: string | null;
  priority: number;
  run_at: Date;
  flags: string[] | null;
  job_key: string | null;
}

/** What a step of adoption did. */
export interface AdoptStep {
  /** Another session adopts jobs of this policy, so this step did nothing. */
  busy: boolean;
  /** How many jobs waited, at most the limit. */
  matched: number | null;
  changed: number | null;
  /** The next step goes on after it. Null: no job waits any more. */
  last_id: string | null;
}

/**
 * Adding jobs, and the keys of jobs that SQL alone cannot work out. It is long because it is a list: a method a statement.
 */
export function staging({ schema, internal, rowsAsIs, manyAsIs, first }: Statements) {
  return {
    /**
     * Rows come in any order. `n` is the job's place in the call. `ends`: the transaction ends with it, so a single job may
     * go at once.
     */
    stage: async (
      client: Queryable,
      batches: readonly StageBatch[],
      mode: JobKeyMode,
      { ends = false } = {},
    ) => {
      const [batch, ...others] = batches;
      if (batch?.policy == null || others.length > 0 || mode !== "replace")
        return rowsAsIs<StagedRow>(
          client,
          `select * from ${internal}._stage(${parameters("json", "text", "texts")})`,
          [JSON.stringify(batches.map(asMessage)), mode, payloadsApart(batches)],
        );
      // for one policy's jobs PostgreSQL then parses the jobs' text once less, which saves a tenth of the time
      const { policy, version, partitions, jobs } = batch;
      const call = `${schema}.enqueue(${parameters("text", "int", "json", "json", "text", "boolean")})`;
      const sent = [JSON.stringify(sharingLimits(partitions)), JSON.stringify(jobs)];
      const values = [policy, version, ...sent, mode, ends];
      if (jobs.some(({ jobKey }) => jobKey != null))
        return rowsAsIs<StagedRow>(client, `select * from ${call}`, values);
      // without a job key nothing is replaced, so the rest of a row is as it was sent
      const staged = await manyAsIs<NewRow>(client, NEW, call, values);
      return staged.map((row) => asSent(batch, row));
    },

    /** Stages jobs as a group. When all have ended for good, `then` is added. */
    stageGroup: (
      client: Queryable,
      batches: readonly StageBatch[],
      mode: JobKeyMode,
      then: GroupCallback,
    ): Promise<StagedRow[]> =>
      rowsAsIs(
        client,
        `select * from ${schema}.enqueue_group(${parameters("json", "text", "texts", "json")})`,
        [JSON.stringify(batches.map(asMessage)), mode, payloadsApart(batches), JSON.stringify(then)],
      ),

    keylessJobs: (client: Queryable, policy: string, version: number, limit: number) =>
      rowsAsIs<KeylessJob>(
        client,
        `select * from ${internal}._keyless_jobs(${parameters("text", "int", "int")})`,
        [policy, version, limit],
      ),

    keyJobs: (client: Queryable, policy: string, version: number, jobs: readonly object[]) =>
      rowsAsIs(client, `select ${internal}._key_jobs(${parameters("text", "int", "json")})`, [
        policy,
        version,
        JSON.stringify(jobs),
      ]),

    /** One step of adoption. Undefined: no policy governs the task. */
    adoptUnlessBusy: (client: Queryable, task: string, after: string, limit: number) =>
      first<AdoptStep | undefined>(
        client,
        `select * from ${internal}._adopt_unless_busy(${parameters("text", "id", "int")})`,
        [task, after, limit],
      ),
  };
}
