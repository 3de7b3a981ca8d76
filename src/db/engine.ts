import pg from "pg";
import type { JsonObject, PolicyDefinition, ResolvedLimit } from "../policy.ts";

/** pg's Pool, Client and PoolClient; and what an ORM hands out, with a two-line adapter. */
export interface Queryable {
  // biome-ignore lint/suspicious/noExplicitAny: rows are whatever the statement returns
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>;
}

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

type NewRow = Pick<StagedRow, "n" | "staged" | "id" | "run_at" | "created_at" | "job">;

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

export interface Admission {
  claimed: number;
  admitted: number;
  denied: Record<string, number>;
  set_aside: number;
  next_eligible_at: Date | number | null;
  /** The same by the database's clock, from now; -Infinity for "now". */
  next_in_ms: number | null;
  /** A cap over all of the policy is reached, and nothing goes until a job ends; "workers": since they have enough to do. */
  saturated: "gate" | "workers" | null;
  /** Arrivals or notes of room wait for the router. */
  to_route: boolean;
}

export interface Drop {
  /** Null: the job's partition was still to be worked out. */
  partition: string | null;
  reason: "max_pending" | "busy";
  jobs: number;
}

export interface Lease {
  policy: string;
  shard: string;
  leads: boolean;
  expires_in_ms: number | null;
  next_in_ms: number | null;
  waiting: boolean;
  busy: boolean;
}

export interface FinishedJob {
  job: string;
  ok: boolean;
  lagMs: number | null;
  /** How long it ran, where that counts. */
  durationMs?: number | undefined;
  /** Which attempt ended; null: whichever holds the slot. */
  attempt: number | null;
  /** Whether Graphile Worker is recording its end just now. */
  ends?: boolean;
  retry: Record<string, unknown> | null;
}

/** An attempt of a job, and the worker pool that runs it. */
export interface Attempt {
  jobId: string;
  attempt: number;
  poolId: string | null;
}

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

export type JobKeyMode = "replace" | "preserve_run_at" | "unsafe_dedupe";

/**
 * In a statement: its transaction commits without waiting for the disk, so its locks are free that much sooner. A crash
 * of the server loses the last transactions, never one of the middle, and nobody acts by one that could be lost: a job
 * starts after its fetch is on the disk, and with it all that was before.
 */
const COMMITS_AT_EASE = "pg_catalog.set_config('synchronous_commit', 'off', true)";

/**
 * The functions of one installation's schema, typed. Each is one statement, and computes next to nothing itself: names
 * and operators in its text are looked up by the caller's search_path, which the functions do not rely on.
 */
export type Engine = ReturnType<typeof makeEngine>;

export function makeEngine(schemaName: string) {
  const schema = pg.escapeIdentifier(schemaName);
  const rows = async <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T[]> =>
    (await client.query(text, values)).rows as T[];
  const first = async <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T> =>
    (await rows<T>(client, text, values))[0] as T;
  const count = async (client: Queryable, call: string, values: unknown[] = []): Promise<number> =>
    (await first<{ n: number }>(client, `select ${schema}.${call} as n`, values)).n;

  return {
    schemaName,

    /** Rows come in any order; `n` says whose they are. */
    stage: async (client: Queryable, batches: readonly StageBatch[], mode: JobKeyMode) => {
      const [batch, ...others] = batches;
      if (batch?.policy == null || others.length > 0 || mode !== "replace")
        return rows<StagedRow>(client, `select * from ${schema}._stage($1::json, $2)`, [
          JSON.stringify(batches.map((one) => ({ ...one, partitions: sharingLimits(one.partitions) }))),
          mode,
        ]);
      // the same for one policy's jobs: a text of many jobs is read once less, a tenth of the time
      const { policy, version, partitions, jobs } = batch;
      const call = `${schema}._stage_governed($1, $2, $3, $4, $5)`;
      const values = [policy, version, JSON.stringify(sharingLimits(partitions)), JSON.stringify(jobs), mode];
      if (jobs.some(({ jobKey }) => jobKey != null))
        return rows<StagedRow>(client, `select * from ${call}`, values);
      // where nothing is replaced, the rest of a row is as it was sent
      const staged = await rows<NewRow>(
        client,
        `select n, staged, id, run_at, created_at, job from ${call}`,
        values,
      );
      return staged.map((row) => asSent(batch, row));
    },

    declare: (
      client: Queryable,
      definition: PolicyDefinition,
      hash: string,
      settings: object,
      startedAt: Date,
    ) =>
      first<{ in_force: boolean; changed: boolean }>(
        client,
        `select * from ${schema}._declare_policy($1, $2, $3, $4)`,
        [JSON.stringify(definition), hash, JSON.stringify(settings), startedAt],
      ),

    partitionsAfter: (client: Queryable, policy: string, after: string | null, limit: number) =>
      rows<{ id: string; key: string; context: JsonObject }>(
        client,
        `select * from ${schema}._partitions_after($1, $2, $3)`,
        [policy, after, limit],
      ),

    resolveAgain: (client: Queryable, policy: string, version: number, partitions: readonly object[]) =>
      rows(client, `select ${schema}._resolve_again($1, $2, $3)`, [
        policy,
        version,
        JSON.stringify(partitions),
      ]),

    keylessJobs: (client: Queryable, policy: string, limit: number) =>
      rows<KeylessJob>(client, `select * from ${schema}._keyless_jobs($1, $2)`, [policy, limit]),

    keyJobs: (client: Queryable, policy: string, version: number, jobs: readonly object[]) =>
      rows(client, `select ${schema}._key_jobs($1, $2, $3)`, [policy, version, JSON.stringify(jobs)]),

    route: async (client: Queryable, policy: string, now: Date | null, max: number, bounded: boolean) => {
      const row = await first<{ routed: number }>(
        client,
        `select ${COMMITS_AT_EASE}, ${schema}._route($1, $2, $3, $4) as routed`,
        [policy, now, max, bounded],
      );
      return row.routed;
    },

    admit: (
      client: Queryable,
      pass: { policy: string; shard: string | null; claim: number; now: Date | null; bounded: boolean },
    ) =>
      first<Admission>(
        client,
        // numbers first: before PostgreSQL 17 there is no difference between a time and infinity
        `select a.*, (extract(epoch from a.next_eligible_at) - extract(epoch from pg_catalog.clock_timestamp()))::float8
           * 1000::float8 as next_in_ms, ${COMMITS_AT_EASE}
         from ${schema}._admit($1, $2, $3, $4, $5) a`,
        [pass.policy, pass.shard, pass.claim, pass.now, pass.bounded],
      ),

    /** Jobs dropped since last asked, counted with their partitions now. */
    takeDrops: (client: Queryable, policy: string) =>
      rows<Drop>(client, `select * from ${schema}._take_drops($1)`, [policy]),

    /**
     * Which of them come again; `saturated`: nobody waits for what they held but workers that have enough to do (null:
     * nobody at all).
     */
    release: (client: Queryable, jobs: readonly FinishedJob[]) =>
      first<{ left_ids: string[]; saturated: boolean | null }>(
        client,
        `select left_ids, saturated, ${COMMITS_AT_EASE} from ${schema}._release($1, null)`,
        [JSON.stringify(jobs)],
      ),

    /** What becomes of a job that starts without having been admitted; `batch` holds it alone. */
    catchUnadmitted: (
      client: Queryable,
      attempt: Attempt,
      job: { stagedId: string | null; batch: StageBatch | undefined; unmanaged: string },
    ) =>
      first<{ verdict: "admitted" | "taken_over" | "ungoverned" | "gone"; stagedId: string | null }>(
        client,
        `select verdict, staged_id::text as "stagedId"
         from ${schema}._catch_unadmitted($1, $2, $3, $4, $5, $6, null)`,
        [
          attempt.jobId,
          job.stagedId,
          attempt.attempt,
          attempt.poolId,
          JSON.stringify(job.batch),
          job.unmanaged,
        ],
      ),

    forgetTakenOver: (client: Queryable) => rows(client, `select ${schema}._forget_taken_over()`),

    startAttempt: (client: Queryable, attempt: Attempt) =>
      first<{ partition: string; staged_id: string; resumed: boolean } | undefined>(
        client,
        `select * from ${schema}._start_attempt($1, $2, $3)`,
        [attempt.jobId, attempt.attempt, attempt.poolId],
      ),

    /** Whether an attempt is still this pool's, and when that was. */
    keepsJob: (client: Queryable, attempt: Attempt) =>
      first<{ keeps: boolean; now: Date }>(
        client,
        `select ${schema}._keeps_job($1, $2, $3) as keeps, pg_catalog.clock_timestamp() as now`,
        [attempt.jobId, attempt.attempt, attempt.poolId],
      ),

    /** A pool's heartbeat, its bids for leases, and what its loops need to know before they sleep. */
    beat: (
      client: Queryable,
      pool: {
        id: string;
        slots: number;
        tasks: readonly string[];
        host: string;
        pid: number;
        staleAfterMs: number;
        clockBehindMs: number;
      },
      bid: { policies: readonly string[]; shards: readonly string[] | null; ttlMs: number; bids: boolean },
    ) =>
      rows<Lease>(client, `select * from ${schema}._beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, [
        pool.id,
        pool.slots,
        pool.tasks,
        pool.host,
        pool.pid,
        interval(pool.staleAfterMs),
        bid.policies,
        bid.shards,
        interval(bid.ttlMs),
        bid.bids,
        interval(pool.clockBehindMs),
      ]),

    /** How far the clock here is behind the database's, and how wrong that may be, both in milliseconds. */
    clockBehindMs: async (client: Queryable) => {
      const asked = Date.now();
      const { seconds } = await first<{ seconds: number }>(
        client,
        "select extract(epoch from pg_catalog.clock_timestamp())::float8 as seconds",
      );
      const answered = Date.now();
      return {
        behindMs: Math.round(seconds * 1000 - (asked + answered) / 2),
        errorMs: Math.ceil((answered - asked) / 2),
      };
    },

    /** Ends what a backend does for this package, and nothing else. */
    cancel: (client: Queryable, pid: number) =>
      rows(
        client,
        `select pg_catalog.pg_cancel_backend(pid) from pg_catalog.pg_stat_activity
         where pid = $1 and state = 'active' and usename = current_user and datname = pg_catalog.current_database()
           and pg_catalog.strpos(query, $2) > 0`,
        [pid, `${schema}._`],
      ),

    policyNames: async (client: Queryable) =>
      (
        await rows<{ name: string }>(client, `select name from ${schema}._private_policies order by name`)
      ).map((row) => row.name),

    /** The leases of these policies as they are, without bidding. */
    leases: (client: Queryable, policies: readonly string[]) =>
      rows<Lease>(client, `select * from ${schema}._lease('', $1, null, interval '0', false)`, [policies]),

    workerGone: (client: Queryable, poolId: string) =>
      rows(client, `select ${schema}._worker_gone($1)`, [poolId]),

    stepDown: (client: Queryable, holder: string) =>
      rows(client, `select ${schema}._step_down($1)`, [holder]),

    scopeOf: (client: Queryable, jobId: string, gate: string | null) =>
      first<{ policy: string; partition: string; scope_key: string | null } | undefined>(
        client,
        `select * from ${schema}._scope_of($1, $2)`,
        [jobId, gate],
      ),

    sweepWorkers: (client: Queryable, poolId: string) =>
      first<{ pools: number; jobs: number }>(client, `select * from ${schema}._sweep_workers($1)`, [poolId]),

    sweepOverdue: async (client: Queryable) =>
      (await rows<{ job_id: string }>(client, `select job_id from ${schema}._sweep_overdue()`)).map(
        (row) => row.job_id,
      ),

    sweepInFlight: (client: Queryable, graceMs: number) =>
      rows<{ job_id: string | null; ok: boolean; retry: FinishedJob["retry"]; marked: number }>(
        client,
        `select * from ${schema}._sweep_in_flight($1)`,
        [interval(graceMs)],
      ),

    sweepCounters: (client: Queryable) => count(client, "_sweep_counters()"),

    /** Backlogs of bounded policies, counted anew. */
    sweepPending: (client: Queryable) => count(client, "_sweep_pending()"),

    sweepWork: (client: Queryable) => count(client, "_sweep_work()"),

    sweepPartitions: (client: Queryable) =>
      first<{ woken: number; unblocked: number }>(
        client,
        `select * from ${schema}._sweep_partitions(pg_catalog.clock_timestamp())`,
      ),

    collectPartitions: (client: Queryable, inactiveAfterMs: number) =>
      count(client, "_collect_partitions(pg_catalog.clock_timestamp(), $1)", [interval(inactiveAfterMs)]),

    collectLimiters: (client: Queryable, inactiveAfterMs: number) =>
      count(client, "_collect_limiters(pg_catalog.clock_timestamp(), $1)", [interval(inactiveAfterMs)]),

    collectOverrides: (client: Queryable) =>
      count(client, "_collect_overrides(pg_catalog.clock_timestamp())"),

    /** Calls a public function by named arguments; those left undefined take their SQL defaults. */
    call: <T>(client: Queryable, name: string, args: Record<string, unknown>) => {
      const given = Object.entries(args).filter(([, value]) => value !== undefined);
      const list = given.map(([key], i) => `${pg.escapeIdentifier(key)} => $${i + 1}`).join(", ");
      return rows<T>(
        client,
        `select * from ${schema}.${pg.escapeIdentifier(name)}(${list})`,
        given.map(([, value]) => value),
      );
    },

    view: <T>(client: Queryable, name: string, where = "", values: unknown[] = []) =>
      rows<T>(client, `select * from ${schema}.${pg.escapeIdentifier(name)} ${where}`, values),
  };
}

function interval(ms: number): string {
  return `${ms} milliseconds`;
}
