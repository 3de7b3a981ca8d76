import type { JsonObject, ResolvedLimit } from "../policy/policy.ts";
import type { Queryable, Statements } from "./statements.ts";

/** One policy's part of a staging call; policy null for jobs that are passed on. Shapes as stage.sql documents them. */
export interface StageBatch {
  policy: string | null;
  version: number;
  partitions: readonly PartitionState[];
  jobs: readonly StageJob[];
}

export interface PartitionState {
  key: string;
  shard: string;
  context: JsonObject;
  weight: number;
  limits: readonly ResolvedLimit[];
}

/** As they are sent: of those with the same limits the first has them, and the others tell its place. */
function sharingLimits(partitions: readonly PartitionState[]): object[] {
  const places = new Map<readonly ResolvedLimit[], number>();
  return partitions.map(({ limits, ...partition }, place) => {
    const like = places.get(limits);
    if (like !== undefined) return { ...partition, like };
    places.set(limits, place);
    return { ...partition, limits };
  });
}

/** A batch as it is sent. The payloads of jobs without a policy stand apart: they may be what no json text may hold. */
function asTold(batch: StageBatch): object {
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
  maxAttempts?: number | undefined;
  jobKey?: string | undefined;
  priority?: number | undefined;
  flags?: readonly string[] | undefined;
  cost?: number;
}

export interface StagedRow {
  n: number;
  staged: boolean;
  /** Null: dropped, the backlog is full. */
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
  job: Record<string, unknown> | null;
}

/** What a row has that was not sent. */
const NEW = ["n", "staged", "id", "run_at", "created_at", "job"] as const;
type NewRow = Pick<StagedRow, (typeof NEW)[number]>;

/** A row of a batch that is the whole call. */
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
    partition: partition?.key ?? null,
    shard: partition?.shard ?? null,
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

/** Adding jobs, and working out those that SQL alone could not. */
export function staging({ schema, rowsAsIs, manyAsIs }: Statements) {
  return {
    /** Rows come in any order; `n` says whose they are. */
    stage: async (client: Queryable, batches: readonly StageBatch[], mode: JobKeyMode) => {
      const [batch, ...others] = batches;
      if (batch?.policy == null || others.length > 0 || mode !== "replace")
        return rowsAsIs<StagedRow>(client, `select * from ${schema}._stage($1::json, $2, $3::text[])`, [
          JSON.stringify(batches.map(asTold)),
          mode,
          payloadsApart(batches),
        ]);
      // the same for one policy's jobs: a text of many jobs is read once less, a tenth of the time
      const { policy, version, partitions, jobs } = batch;
      const call = `${schema}._stage_governed($1, $2, $3, $4, $5)`;
      const values = [policy, version, JSON.stringify(sharingLimits(partitions)), JSON.stringify(jobs), mode];
      if (jobs.some(({ jobKey }) => jobKey != null))
        return rowsAsIs<StagedRow>(client, `select * from ${call}`, values);
      // where nothing is replaced, the rest of a row is as it was sent
      const staged = await manyAsIs<NewRow>(client, NEW, call, values);
      return staged.map((row) => asSent(batch, row));
    },

    keylessJobs: (client: Queryable, policy: string, limit: number) =>
      rowsAsIs<KeylessJob>(client, `select * from ${schema}._keyless_jobs($1, $2)`, [policy, limit]),

    keyJobs: (client: Queryable, policy: string, version: number, jobs: readonly object[]) =>
      rowsAsIs(client, `select ${schema}._key_jobs($1, $2, $3)`, [policy, version, JSON.stringify(jobs)]),
  };
}
