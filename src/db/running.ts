import type { StageBatch } from "./staging.ts";
import { COMMITS_AT_EASE, type Queryable, type Statements } from "./statements.ts";

/** How a failed job is tried again. SQL reads it as its type `_private_retry`, which has the same names. */
export type Retry = {
  /** The attempt that failed. */
  attempt: number;
} & (
  | { /** It fails for good. */ giveUp: true }
  | { /** Graphile Worker retries it, so many seconds from now. */ native: true; after: number }
  | {
      /** Seconds until it is due. */
      after: number;
      task: string;
      priority: number;
      maxAttempts: number;
      /** The run was no attempt. With it goes the job's key, by which the next job in its row is told apart. */
      giveBack?: true;
      jobKey?: string | null;
      /** It goes on in another partition. */
      move?: Move | undefined;
    }
);

export interface Move {
  key: string;
  shard: string;
  context: object;
  weight: number;
  cost: number;
  limits: readonly object[];
}

export interface FinishedJob {
  job: string;
  /** Which job of Graphile Worker's row, see {@link HeldSlot}; null: whichever is there. */
  admission: string | null;
  /** Null: nobody saw its end. It counts as neither success nor failure. */
  ok: boolean | null;
  lagMs: number | null;
  /** How long it ran, where that counts. */
  durationMs?: number | undefined;
  /** Which attempt ended; null: whichever holds the slot. */
  attempt: number | null;
  /** Whether Graphile Worker is recording its end just now. */
  ends?: boolean;
  retry: Retry | null;
}

/** An attempt of a job, and the worker pool that runs it. */
export interface Attempt {
  jobId: string;
  /** Of Graphile Worker's row, which the next job of a key may get. */
  revision: number;
  attempt: number;
  poolId: string | null;
}

/** The slot a job holds: it belongs to one admission of the row. */
export interface HeldSlot {
  stagedId: string;
  /** When that was, by the time of its transaction: microseconds since 1970. Each start that is noted is one of its own. */
  admission: string;
  /** The admission before this start: the tick's. */
  admitted: string;
  partition: string;
  /** The attempt before was cut short. */
  resumed: boolean;
}

/** What becomes of a job that was never admitted; `admission`: of the slot it holds, null where it holds none. */
export interface CaughtJob {
  verdict: "admitted" | "taken_over" | "ungoverned" | "gone";
  stagedId: string | null;
  admission: string | null;
}

/** What becomes of jobs that were handed to Graphile Worker. */
export function running({ schema, first }: Statements) {
  return {
    startAttempt: (client: Queryable, attempt: Attempt) =>
      first<HeldSlot | undefined>(
        client,
        `select partition, staged_id::text as "stagedId", admission::text, admitted::text, resumed
         from ${schema}._start_attempt($1, $2, $3, $4)`,
        [attempt.jobId, attempt.revision, attempt.attempt, attempt.poolId],
      ),

    /** Of the slot that a job still has which this one replaced in its row, under its key. */
    replacedAdmission: async (client: Queryable, { jobId, revision }: Attempt) =>
      (
        await first<{ admission: string | null }>(
          client,
          `select ${schema}._replaced_admission($1, $2)::text as admission`,
          [jobId, revision],
        )
      ).admission,

    /** What becomes of a job that starts without having been admitted; `batch` holds it alone. */
    catchUnadmitted: (
      client: Queryable,
      attempt: Attempt,
      job: { batch: StageBatch | undefined; unmanaged: string },
    ) =>
      first<CaughtJob>(
        client,
        `select verdict, staged_id::text as "stagedId", admission::text
         from ${schema}._catch_unadmitted($1, $2, $3, $4, $5, $6, null)`,
        [
          attempt.jobId,
          attempt.revision,
          attempt.attempt,
          attempt.poolId,
          JSON.stringify(job.batch),
          job.unmanaged,
        ],
      ),

    /** Whether an attempt is still this pool's, and when that was. */
    keepsJob: (client: Queryable, attempt: Attempt) =>
      first<{ keeps: boolean; now: Date }>(
        client,
        `select ${schema}._keeps_job($1, $2, $3) as keeps, pg_catalog.clock_timestamp() as now`,
        [attempt.jobId, attempt.attempt, attempt.poolId],
      ),

    scopeOf: (client: Queryable, jobId: string, gate: string | null) =>
      first<{ policy: string; partition: string; scope_key: string | null } | undefined>(
        client,
        `select * from ${schema}._scope_of($1, $2)`,
        [jobId, gate],
      ),

    /**
     * Which of them come again; `saturated`: nobody waits for what they held but workers that have enough to do (null:
     * nobody at all).
     */
    release: (client: Queryable, jobs: readonly FinishedJob[]) =>
      first<{ left_ids: string[]; saturated: boolean | null }>(
        client,
        `select left_ids, saturated, ${COMMITS_AT_EASE} from ${schema}._release($1, null)`,
        [JSON.stringify(jobs.map(asTold))],
      ),
  };
}

/** Without names that say nothing: of thousands of jobs, each takes time to write and to read. */
function asTold({ retry, ...told }: FinishedJob): object {
  return retry === null ? told : { ...told, retry };
}
