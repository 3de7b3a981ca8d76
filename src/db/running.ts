import { parameters } from "./parameters.ts";
import type { SaidRun } from "./pools.ts";
import type { StageBatch } from "./staging.ts";
import type { Queryable, Statements } from "./statements.ts";

/** An attempt of a job, and the worker pool that runs it. */
export interface Attempt {
  jobId: string;
  /** The revision of Graphile Worker's row. The next job of a key may get the same row. */
  revision: number;
  attempt: number;
  poolId: string | null;
  /** When it was fetched, by the clock of the fetch. Null: it cannot be read, because the application has replaced pg's parsers. */
  lockedAt: Date | null;
}

/** The slot that a job occupies. It belongs to one admission of the row. */
export interface OccupiedSlot {
  stagedId: string;
  /** The time of the admission's transaction, in microseconds since 1970. Each recorded start is an admission of its own. */
  admission: string;
  /** When the job was admitted, in microseconds since 1970. */
  admitted: string;
  partition: string;
  /** The attempt before was interrupted. */
  resumed: boolean;
  /** Who has cancelled the job. Null: nobody has. */
  cancelledBy: string | null;
  /** Why. */
  cancelReason: string | null;
  /**
   * The attempt before may still run, because Graphile Worker gives locks up after four hours: this start asks again later.
   * "asked": nobody has answered yet. Null: it may run.
   */
  doubt: "asked" | "answered" | null;
}

/** What a start asks besides, if the attempt before may still run. `ticket`: the admission that the job's flag names. */
export interface Asking {
  readonly ticket: string | null;
  readonly unanswered: number;
}

/** What a job needs of the share of its worker pool, at a gate with `perWorker`. */
export interface Share {
  readonly gate: string;
  /** The scope key; null: all of the policy. */
  readonly key: string | null;
  /** How many jobs of the key the pool may run at once. */
  readonly max: number;
  /** The job was admitted past its gates: it runs all the same, and counts. */
  readonly forced: boolean;
}

/** A job that its worker pool does not run. */
export interface RequeuedJob {
  readonly admission: string;
  /** The gates at which the pool is full. */
  readonly gates: readonly string[];
  /** As JSON. Null: SQL reads the row, because JavaScript may have rounded a number. */
  readonly payload: string | null;
}

/** A job in flight that an operator, or a newer job of its key, has cancelled. */
export interface CancelledJob {
  jobId: string;
  admission: string;
  by: string;
  reason: string | null;
  /** Seconds after its begin until which its run may go on. Null: it is told at once. */
  minRun: number | null;
}

/** How a job is treated that was never admitted. `admission` owns the slot that it occupies; null if it has none. */
export interface CaughtJob {
  verdict: "admitted" | "copied" | "ungoverned" | "gone" | "reassigned";
  stagedId: string | null;
  admission: string | null;
}

const SLOT = `partition, staged_id::text as "stagedId", admission::text, admitted::text, resumed,
  cancelled_by as "cancelledBy", cancel_reason as "cancelReason", doubt`;

const ATTEMPT = ["id", "int", "int", "text", "time"] as const;
const ASKING = [...ATTEMPT, "id", "int"] as const;

function withoutPayloads({ jobs, ...batch }: StageBatch) {
  return { ...batch, jobs: jobs.map(({ payload: _, ...job }) => job) };
}

function valuesOf({ jobId, revision, attempt, poolId, lockedAt }: Attempt) {
  return [jobId, revision, attempt, poolId, lockedAt];
}

/** The starts of jobs that were handed to Graphile Worker. It is long because it is a list: a method a statement. */
export function running({ internal, first, rows }: Statements) {
  return {
    startAttempt: (client: Queryable, attempt: Attempt, { ticket, unanswered }: Asking) =>
      first<OccupiedSlot | undefined>(
        client,
        `select ${SLOT} from ${internal}._start_attempt(${parameters(...ASKING)})`,
        [...valuesOf(attempt), ticket, unanswered],
      ),

    /** Answers a start of a later attempt. */
    stillRuns: (client: Queryable, jobId: string, admission: string, attempt: number, poolId: string) =>
      rows(client, `select ${internal}._still_runs(${parameters("id", "id", "int", "text")})`, [
        ...[jobId, admission, attempt, poolId],
      ]),

    /** The same for a policy that has a gate with `perWorker`. As a text, because applications replace pg's parsers. */
    startAttemptInShare: async (client: Queryable, attempt: Attempt, { ticket, unanswered }: Asking) => {
      const slot = await first<(OccupiedSlot & { shares: string }) | undefined>(
        client,
        `select ${SLOT}, (
           select coalesce(json_agg(s), '[]')::text from ${internal}._shares_of(${parameters("id")}) s) as shares
         from ${internal}._start_attempt(${parameters(...ASKING)})`,
        [...valuesOf(attempt), ticket, unanswered],
      );
      return slot && { ...slot, shares: JSON.parse(slot.shares) as Share[] };
    },

    /** Occupies slots for a job that runs, as its pool says. `batch` has this job alone. */
    occupyRun: (client: Queryable, poolId: string, run: SaidRun, batch: StageBatch) =>
      rows(
        client,
        `select ${internal}._occupy_run(${parameters("text", "id", "int", "int", "id", "id", "json")})`,
        [
          ...[poolId, run.job, run.revision, run.attempt, run.admission, run.stagedId],
          JSON.stringify(withoutPayloads(batch)),
        ],
      ),

    sharesOf: (client: Queryable, jobId: string) =>
      rows<Share>(client, `select gate, key, max, forced from ${internal}._shares_of(${parameters("id")})`, [
        jobId,
      ]),

    /** Whether the job is staged again. Then it must not run. */
    requeue: async (client: Queryable, attempt: Attempt, job: RequeuedJob) =>
      (
        await first<{ sent: boolean }>(
          client,
          `select ${internal}._requeue(
             ${parameters("id", "int", "int", "text", "id", "texts", "json")}, null) as sent`,
          [
            attempt.jobId,
            attempt.revision,
            attempt.attempt,
            attempt.poolId,
            job.admission,
            job.gates,
            job.payload,
          ],
        )
      ).sent,

    cancelledJobs: (client: Queryable) =>
      rows<CancelledJob>(
        client,
        `select job_id::text as "jobId", admission::text, by, reason, min_run as "minRun" from ${internal}._cancelled_jobs()`,
      ),

    /** The admission of the job that this one replaced in its row, under its key, if that one still occupies a slot. */
    replacedAdmission: async (client: Queryable, { jobId, revision }: Attempt) =>
      (
        await first<{ admission: string | null }>(
          client,
          `select ${internal}._replaced_admission(${parameters("id", "int")})::text as admission`,
          [jobId, revision],
        )
      ).admission,

    /** Decides about a job that starts without an admission. `batch` has this job alone; `payload` is as in `requeue`. */
    catchUnadmitted: (
      client: Queryable,
      attempt: Attempt,
      job: { batch: StageBatch; payload: string | null; unmanaged: string },
    ) =>
      first<CaughtJob>(
        client,
        `select verdict, staged_id::text as "stagedId", admission::text
         from ${internal}._catch_unadmitted(${parameters(...ATTEMPT, "json", "json", "text")}, null)`,
        [...valuesOf(attempt), JSON.stringify(withoutPayloads(job.batch)), job.payload, job.unmanaged],
      ),

    /** Whether an attempt still belongs to this pool, and at what time that was true. */
    keepsJob: (client: Queryable, attempt: Attempt) =>
      first<{ keeps: boolean; now: Date }>(
        client,
        `select ${internal}._keeps_job(${parameters("id", "int", "text", "time")}) as keeps, pg_catalog.clock_timestamp() as now`,
        [attempt.jobId, attempt.attempt, attempt.poolId, attempt.lockedAt],
      ),

    scopeOf: (client: Queryable, jobId: string, gate: string | null) =>
      first<{ policy: string; partition: string; scope_key: string | null } | undefined>(
        client,
        `select * from ${internal}._scope_of(${parameters("id", "text")})`,
        [jobId, gate],
      ),
  };
}
