// What the public views show once nothing runs any more.
import type pg from "pg";
import { TASKS } from "./world.ts";

/** What is left, by what it is. */
export async function leftovers(pool: pg.Pool): Promise<Record<string, number>> {
  const { rows } = await pool.query(
    `select
      (select count(*)::int from dispatch_policy.staged_jobs) as "staged jobs",
      (select count(*)::int from dispatch_policy.in_flight_jobs) as "in-flight jobs",
      (select coalesce(sum(in_flight), 0)::int from dispatch_policy.limiters) as "counted in flight",
      (select count(*)::int from graphile_worker.jobs where task_identifier = any($1)) as "jobs in Graphile Worker"`,
    [TASKS],
  );
  return rows[0];
}

/** Who holds the jobs that are left, and who is there: the first of each. */
export async function whatWaits(pool: pg.Pool): Promise<object> {
  const jobs = await pool.query(
    `select id, task_identifier, attempts, run_at, locked_by, locked_at, last_error, flags, revision, now()
     from graphile_worker.jobs where task_identifier = any($1) limit 5`,
    [TASKS],
  );
  const workers = await pool.query("select * from dispatch_policy.workers order by 1 limit 20");
  return { jobs: jobs.rows, workers: workers.rows };
}
