import { parameter, parameters } from "./parameters.ts";
import { COMMITS_AT_EASE, type Queryable, type Statements } from "./statements.ts";

/** How a failed job is tried again. SQL reads it as the type `_private_retry`, which has the same names. */
export type Retry = {
  /** The attempt that failed. */
  attempt: number;
  /** Of the job's row in Graphile Worker, which the next job of its key may get. Left out: whichever. */
  revision?: number;
} & (
  | { /** It fails for good. */ giveUp: true }
  | {
      /** Graphile Worker retries it, so many seconds from now. */
      native: true;
      after: number;
      refund?: true;
      jobKey?: string | null;
    }
  | {
      /** Seconds until it is due. */
      after: number;
      task: string;
      priority: number;
      maxAttempts: number;
      /** The run does not count as an attempt. The job's key is sent with it, to recognise another job in the same row. */
      refund?: true;
      jobKey?: string | null;
      /** The retry belongs to another partition. */
      move?: Move | undefined;
    }
);

/** The partition to which a retry moves, and the limits there. */
export interface Move {
  key: string;
  lane: string | null;
  shard: string;
  context: object;
  weight: number;
  cost: number;
  limits: readonly object[];
}

/** What a run cost, in tokens: at the gates by their names, and at every other throttle. Left out: its estimate. */
export interface Settled {
  readonly cost?: number;
  readonly gates?: Readonly<Record<string, number>>;
}

/** A job that ended, for its release. */
export interface FinishedJob {
  job: string;
  /** The owner of the slot, because the next job of a key may have the same row. Null: whichever occupies it. */
  admission: string | null;
  /** Null: nobody saw its end. It counts as neither success nor failure. */
  ok: boolean | null;
  /** It failed, and that says nothing of the partner: no breaker, adaptive limit or probe counts it. */
  saysNothing?: true;
  lagMs: number | null;
  /** Its task identifier. */
  task?: string;
  /** How long it ran. */
  durationMs?: number | undefined;
  /** The attempt that ended. Null: whichever occupies the slot. */
  attempt: number | null;
  /** Whether Graphile Worker is recording its end just now. */
  ends?: boolean;
  /** First line of its error, if it failed for good and its policy has a history. */
  error?: string | undefined;
  /** The id that it had in staging, if it succeeded and its policy remembers its key. */
  stagedId?: string | undefined;
  /** What it cost, if its run said so. */
  settled?: Settled | undefined;
  retry: Retry | null;
}

/** What a release admitted of a policy. */
export interface PassedOn {
  readonly policy: string;
  readonly jobs: number;
}

/** The ends of jobs in flight. */
export function releasing({ internal, first }: Statements) {
  return {
    /**
     * Releases jobs. `left_ids` are the jobs to be tried again. `may_end` says how many of a worker pool's jobs may end
     * before the next release, because the workers have enough to do. Null: no partition waits. With `passesOn`, the slots
     * of a few jobs go to the next ones at once: `passed_on` says how many went so. `is_to_tell`: a tick loop has to read how these
     * ended.
     */
    release: (client: Queryable, jobs: readonly FinishedJob[], { passesOn = false } = {}) =>
      first<{
        left_ids: string[];
        may_end: number | null;
        passed_on: PassedOn[] | null;
        is_to_tell: boolean | null;
      }>(
        client,
        `select left_ids, may_end, passed_on, is_to_tell, case when is_recorded then null else ${COMMITS_AT_EASE} end
         from ${internal}._release(${parameters("json")}, null, ${parameter(2, "boolean")})`,
        [JSON.stringify(asSent(jobs)), passesOn],
      ),
  };
}

/**
 * Jobs in a row that ended alike are sent as one entry with lists. For thousands of jobs, an object each takes time to
 * write and to read. The order is kept, because an adaptive limit goes by it. A retry is an entry of its own, and so is a
 * settled job.
 */
export function asSent(jobs: readonly FinishedJob[]): object[] {
  const rows: FinishedJob[][] = [];
  for (const job of jobs) {
    const row = rows.at(-1);
    if (row && endedAlike(row[0] as FinishedJob, job)) row.push(job);
    else rows.push([job]);
  }
  return rows.map((row) => (row.length > 1 ? asLists(row) : asObject(row[0] as FinishedJob)));
}

function endedAlike(a: FinishedJob, b: FinishedJob): boolean {
  const same =
    a.ok === b.ok && a.saysNothing === b.saysNothing && a.ends === b.ends && a.attempt === b.attempt;
  return (
    same &&
    a.admission === b.admission &&
    a.task === b.task &&
    a.error === b.error &&
    (a.stagedId === undefined) === (b.stagedId === undefined) &&
    a.retry === null &&
    b.retry === null &&
    a.settled === undefined &&
    b.settled === undefined
  );
}

/** Without `retry` if it is null: each name takes time as well. */
function asObject({ retry, ...sent }: FinishedJob): object {
  return retry === null ? sent : { ...sent, retry };
}

function asLists(alike: readonly FinishedJob[]): object {
  const { ok, saysNothing, ends, attempt, admission, task, error, stagedId } = alike[0] as FinishedJob;
  return {
    ...{ ok, saysNothing, ends, attempt, admission, task, error },
    jobs: arrayOf(alike.map(({ job }) => job)),
    lagsMs: arrayOf(alike.map(({ lagMs }) => milliseconds(lagMs))),
    durationsMs: arrayOf(alike.map(({ durationMs }) => milliseconds(durationMs))),
    ...(stagedId !== undefined && { stagedIds: arrayOf(alike.map((one) => one.stagedId as string)) }),
  };
}

function milliseconds(time: number | null | undefined): number | "NULL" {
  return Number.isFinite(time) ? (time as number) : "NULL";
}

/** An array of numbers as PostgreSQL reads it. */
function arrayOf(numbers: readonly (string | number)[]): string {
  return `{${numbers.join()}}`;
}
