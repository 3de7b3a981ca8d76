import type { FinishedJob } from "./running.ts";
import { interval, type Queryable, type Statements } from "./statements.ts";

/** Repairs, and forgetting what is no longer used; each is one call and one transaction. */
export function sweeping({ schema, rows, first, count }: Statements) {
  return {
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

    forgetTakenOver: (client: Queryable) => rows(client, `select ${schema}._forget_taken_over()`),

    collectPartitions: (client: Queryable, inactiveAfterMs: number) =>
      count(client, "_collect_partitions(pg_catalog.clock_timestamp(), $1)", [interval(inactiveAfterMs)]),

    collectLimiters: (client: Queryable, inactiveAfterMs: number) =>
      count(client, "_collect_limiters(pg_catalog.clock_timestamp(), $1)", [interval(inactiveAfterMs)]),

    collectOverrides: (client: Queryable) =>
      count(client, "_collect_overrides(pg_catalog.clock_timestamp())"),
  };
}
