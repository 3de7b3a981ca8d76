import type { FinishedJob } from "./running.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

export interface OverdueSlot {
  jobId: string;
  admission: string;
  attempt: number;
}

/** Repairs, and forgetting what is no longer used; each is one call and one transaction. */
export function sweeping({ schema, rows, first, count }: Statements) {
  return {
    sweepWorkers: (client: Queryable, poolId: string) =>
      first<{ pools: number; jobs: number }>(client, `select * from ${schema}._sweep_workers($1)`, [poolId]),

    /** The slots of jobs that run for too long, with the attempt that holds each. */
    sweepOverdue: (client: Queryable) =>
      rows<OverdueSlot>(
        client,
        `select job_id::text as "jobId", admission::text, attempt from ${schema}._sweep_overdue()`,
      ),

    releaseSlots: (client: Queryable, slot: OverdueSlot, { reason, by }: { reason: string; by: string }) =>
      first<{ matched: number; changed: number }>(
        client,
        `select matched, changed from ${schema}._release_slots($1, $2, $3, $4, $5)`,
        [slot.jobId, slot.admission, slot.attempt, reason, by],
      ),

    /** `only`: those that a verb has marked, and no others. */
    sweepInFlight: (client: Queryable, graceMs: number, only = false) =>
      rows<
        Pick<FinishedJob, "admission" | "attempt" | "ok" | "retry"> & {
          job_id: string | null;
          marked: number;
        }
      >(
        client,
        `select job_id::text, admission::text, attempt, ok, retry, marked from ${schema}._sweep_in_flight($1, $2)`,
        [interval(graceMs), only],
      ),

    sweepCounters: (client: Queryable) => count(client, "_sweep_counters()"),

    /** Backlogs of bounded policies, counted anew. */
    sweepPending: (client: Queryable) => count(client, "_sweep_pending()"),

    sweepWork: (client: Queryable) => count(client, "_sweep_work()"),

    /** Times that a clock that was ahead left behind. */
    sweepClock: (client: Queryable) =>
      rows(client, `select ${schema}._sweep_clock(pg_catalog.clock_timestamp())`),

    sweepPartitions: (client: Queryable) =>
      first<{ woken: number; unblocked: number }>(
        client,
        `select * from ${schema}._sweep_partitions(pg_catalog.clock_timestamp())`,
      ),

    /** Parked jobs whose place another one of their key took, and left. */
    sweepReplaced: (client: Queryable) => count(client, "_sweep_replaced()"),

    forgetTakenOver: (client: Queryable) => rows(client, `select ${schema}._forget_taken_over()`),

    collectPartitions: (client: Queryable, inactiveAfterMs: number) =>
      count(client, "_collect_partitions(pg_catalog.clock_timestamp(), $1)", [interval(inactiveAfterMs)]),

    collectLimiters: (client: Queryable, inactiveAfterMs: number) =>
      count(client, "_collect_limiters(pg_catalog.clock_timestamp(), $1)", [interval(inactiveAfterMs)]),

    collectOverrides: (client: Queryable) =>
      count(client, "_collect_overrides(pg_catalog.clock_timestamp())"),
  };
}
