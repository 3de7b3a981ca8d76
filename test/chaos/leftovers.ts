// What the public views show once nothing runs any more.
import type pg from "pg";
import { rowsThatWait } from "./tables.ts";
import { TASKS } from "./world.ts";

/** What is left, by what it is. */
export async function leftovers(pool: pg.Pool): Promise<Record<string, number>> {
  const { rows } = await pool.query(
    `select
      (select count(*)::int from dispatch_policy.staged_jobs) as "staged jobs",
      (select count(*)::int from dispatch_policy.in_flight_jobs) as "in-flight jobs",
      (select count(*)::int from dispatch_policy.groups) as "open job groups",
      (select coalesce(sum(in_flight), 0)::int from dispatch_policy.limiters) as "counted in flight",
      (select count(*)::int from graphile_worker.jobs
        -- a cancelled one is kept as failed for good
        where task_identifier = any($1) and attempts < max_attempts) as "jobs in Graphile Worker"`,
    [TASKS],
  );
  return rows[0];
}

/** What keeps the jobs that are left, and who is there: the first of each. */
export async function whatWaits(pool: pg.Pool): Promise<object> {
  const rowsOf = async (text: string, values: unknown[] = []) => (await pool.query(text, values)).rows;
  return {
    jobs: await rowsOf(
      `select id, task_identifier, attempts, run_at, locked_by, locked_at, last_error, flags, revision, now()
       from graphile_worker.jobs where task_identifier = any($1) and attempts < max_attempts limit 5`,
      [TASKS],
    ),
    ...(await rowsThatWait(pool)),
    groups: await rowsOf("select * from dispatch_policy.groups limit 5"),
    "jobs of groups": await rowsOf("select * from dispatch_policy.group_jobs limit 5"),
    locks: await rowsOf(
      `select a.pid, a.state, a.query, a.xact_start, now() from pg_stat_activity a
       where a.datname = current_database() and a.xact_start < now() - interval '1 second'`,
    ),
    workers: await rowsOf("select * from dispatch_policy.workers order by 1 limit 20"),
  };
}
