import { parameter, parameters } from "./parameters.ts";
import type { FinishedJob } from "./releasing.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

export interface OverdueSlot {
  jobId: string;
  admission: string;
  attempt: number;
}

/** A slot that nobody will free: as a job that ended, with its policy's name. */
export interface LostSlot extends Pick<FinishedJob, "job" | "admission" | "attempt" | "ok" | "retry"> {
  policy: string;
}

/** What a look saw of the jobs in flight behind the job `after`. */
export interface LookedPage {
  after: string;
  /** Where the next page begins; "0": at the first job again. */
  next_after: string;
  /** The policies that have a job on this page. */
  known: readonly string[];
  lost: readonly LostSlot[];
  /** Jobs that run in worker pools with this package. */
  ours: readonly string[];
  /** Jobs that run in others. */
  foreign_ids: readonly string[];
}

/** Who keeps PostgreSQL from removing dead rows. See `_old_snapshots`. */
export type OldSnapshot = {
  /** When it began, and how many seconds ago. Null: no time is known, or this role may not see it. */
  since: Date | null;
  seconds: number | null;
  /** How many have written since. The rows that died in them are kept. */
  transactions: number;
} & (
  | {
      kind: "session";
      pid: number;
      role: string;
      application: string;
      state: string | null;
      database: string | null;
    }
  | { kind: "prepared"; name: string; role: string; database: string | null }
  | { kind: "standby"; pid: number; application: string }
  /** `pid` reads it; null: nobody does. */
  | { kind: "slot"; name: string; pid: number | null }
);

/** The repairs of a sweep. Each is one call and one transaction. It is long because it is a list: a method a statement. */
export function sweeping({ internal, rows, first, count }: Statements) {
  return {
    sweepWorkers: (client: Queryable, poolId: string) =>
      first<{ pools: number; jobs: number }>(
        client,
        `select * from ${internal}._sweep_workers(${parameters("text")})`,
        [poolId],
      ),

    /** Puts in force what live workers have. Returns the policies whose definition has changed by that. */
    sweepDefinitions: (client: Queryable) =>
      rows<{ policy: string; version: number; version_before: number }>(
        client,
        `select * from ${internal}._sweep_definitions()`,
      ),

    /** The slots of jobs that run for longer than their `slotTimeout`, with the attempt that occupies each. */
    sweepOverdue: (client: Queryable) =>
      rows<OverdueSlot>(
        client,
        `select job_id::text as "jobId", admission::text, attempt from ${internal}._sweep_overdue()`,
      ),

    releaseSlots: (client: Queryable, slot: OverdueSlot, { reason, by }: { reason: string; by: string }) =>
      first<{ matched: number; changed: number }>(
        client,
        `select matched, changed from ${internal}._release_slots(${parameters("id", "id", "int", "text", "text")})`,
        [slot.jobId, slot.admission, slot.attempt, reason, by],
      ),

    /** `only`: just those that a verb has marked. */
    sweepInFlight: (client: Queryable, graceMs: number, only = false) =>
      rows<
        Pick<FinishedJob, "admission" | "attempt" | "ok" | "retry"> & {
          job_id: string | null;
          marked: number;
        }
      >(
        client,
        `select job_id::text, admission::text, attempt, ok, retry, marked from ${internal}._sweep_in_flight(${parameters("interval", "boolean")})`,
        [interval(graceMs), only],
      ),

    /** Policies for which jobs wait, and which no live worker has. */
    orphanedPolicies: (client: Queryable) =>
      rows<{ policy: string; jobs: number; declared: boolean }>(
        client,
        `select policy, jobs, declared from ${internal}._orphaned_policies()`,
      ),

    /** `transactions`: from how many on one counts whose age is not known. */
    oldSnapshots: (client: Queryable, olderThanMs: number, transactions: number) =>
      rows<OldSnapshot>(
        client,
        `select * from ${internal}._old_snapshots(pg_catalog.clock_timestamp(), ${parameters("interval", "id")})`,
        [interval(olderThanMs), transactions],
      ),

    /** A page of the jobs in flight of these policies. See `_look_for_lost`. */
    lookForLost: (client: Queryable, policies: readonly string[], after: string, limit: number) =>
      first<LookedPage>(
        client,
        `select ${parameter(2, "text")} as after, next_after::text, known, lost, ours::text[], foreign_ids::text[]
         from ${internal}._look_for_lost(${parameters("texts", "id", "int")})`,
        [policies, after, limit],
      ),

    /** Frees lost slots, and counts those that ended elsewhere. Returns the jobs that must wait for a later look. */
    releaseLost: async (client: Queryable, slots: readonly (LostSlot & { elsewhere: boolean })[]) => {
      const row = await first<{ left_ids: readonly string[] }>(
        client,
        `select left_ids::text[] from ${internal}._release_lost(${parameters("json")})`,
        [JSON.stringify(slots)],
      );
      return row.left_ids;
    },

    sweepCounters: (client: Queryable) => count(client, "_sweep_counters()"),

    /** Counts the backlogs of bounded policies again. */
    sweepPending: (client: Queryable) => count(client, "_sweep_pending()"),

    /** Drops jobs that have expired where no pass looks. Returns how many, at most 1,000. */
    sweepExpired: (client: Queryable) => count(client, "_sweep_expired(pg_catalog.clock_timestamp())"),

    sweepWork: (client: Queryable) => count(client, "_sweep_work()"),

    /** Lowers times that a wrong clock has set too far ahead. */
    sweepClock: (client: Queryable) =>
      rows(client, `select ${internal}._sweep_clock(pg_catalog.clock_timestamp())`),

    sweepPartitions: (client: Queryable) =>
      first<{ woken: number; unblocked: number }>(
        client,
        `select * from ${internal}._sweep_partitions(pg_catalog.clock_timestamp())`,
      ),
  };
}
