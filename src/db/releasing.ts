import { parameters } from "./parameters.ts";
import { COMMITS_AT_EASE, type Queryable, type Statements } from "./statements.ts";

/** How a failed job is tried again. SQL reads it as the type `_private_retry`, which has the same names. */
export type Retry = {
  /** The attempt that failed. */
  attempt: number;
  /** Of the job's row in Graphile Worker, which the next job of its key may get. Left out: whichever. */
  revision?: number;
} & (
  | { /** It fails for good. */ giveUp: true }
  | { /** Graphile Worker retries it, so many seconds from now. */ native: true; after: number }
  | {
      /** Seconds until it is due. */
      after: number;
      task: string;
      priority: number;
      maxAttempts: number;
      /** The run does not count as an attempt. The job's key is sent with it, to recognise another job in the same row. */
      giveBack?: true;
      jobKey?: string | null;
      /** The retry belongs to another partition. */
      move?: Move | undefined;
    }
);

/** The partition to which a retry moves, and the limits there. */
export interface Move {
  key: string;
  shard: string;
  context: object;
  weight: number;
  cost: number;
  limits: readonly object[];
}

/** A job that ended, for its release. */
export interface FinishedJob {
  job: string;
  /** The owner of the slot, because the next job of a key may have the same row. Null: whichever occupies it. */
  admission: string | null;
  /** Null: nobody saw its end. It counts as neither success nor failure. */
  ok: boolean | null;
  lagMs: number | null;
  /** Its task identifier. */
  task?: string;
  /** How long it ran. */
  durationMs?: number | undefined;
  /** The attempt that ended. Null: whichever occupies the slot. */
  attempt: number | null;
  /** Whether Graphile Worker is recording its end just now. */
  ends?: boolean;
  retry: Retry | null;
}

/** The ends of jobs in flight. */
export function releasing({ schema, first }: Statements) {
  return {
    /**
     * Releases jobs. `left_ids` are the jobs to be tried again. `may_rest` says whether partitions wait only because the
     * workers have enough to do. Null: none waits.
     */
    release: (client: Queryable, jobs: readonly FinishedJob[]) =>
      first<{ left_ids: string[]; may_rest: boolean | null }>(
        client,
        `select left_ids, may_rest, case when is_recorded then null else ${COMMITS_AT_EASE} end
         from ${schema}._release(${parameters("json")}, null)`,
        [JSON.stringify(jobs.map(asSent))],
      ),
  };
}

/** Without `retry` if it is null: for thousands of jobs, each name takes time to write and to read. */
function asSent({ retry, ...sent }: FinishedJob): object {
  return retry === null ? sent : { ...sent, retry };
}
