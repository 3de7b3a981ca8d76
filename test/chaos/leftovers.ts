// What the public views show once nothing runs any more.
import type pg from "pg";
import { TASKS } from "./world.ts";

/** What is left, by what it is. */
export async function leftovers(pool: pg.Pool): Promise<Record<string, number>> {
  const { rows } = await pool.query(
    `select
      (select count(*)::int from dispatch_policy.staged_jobs) as "staged jobs",
      (select count(*)::int from dispatch_policy.in_flight_jobs) as "in-flight jobs",
      (select count(*)::int from dispatch_policy.groups) as "open job groups",
      (select coalesce(sum(in_flight), 0)::int from dispatch_policy.limiters) as "counted in flight",
      (select count(*)::int from graphile_worker.jobs where task_identifier = any($1)) as "jobs in Graphile Worker"`,
    [TASKS],
  );
  return rows[0];
}

/** What keeps the jobs that are left, and who is there: the first of each. */
export async function whatWaits(pool: pg.Pool): Promise<object> {
  const rowsOf = async (text: string, values: unknown[] = []) => (await pool.query(text, values)).rows;
  const internal = (table: string) => `dispatch_policy._private_${table}`;
  const partitions = `(select partition_id from ${internal("staged_jobs")} limit 5)`;
  return {
    jobs: await rowsOf(
      `select id, task_identifier, attempts, run_at, locked_by, locked_at, last_error, flags, revision, now()
       from graphile_worker.jobs where task_identifier = any($1) limit 5`,
      [TASKS],
    ),
    staged: await rowsOf(`select * from ${internal("staged_jobs")} limit 5`),
    partitions: await rowsOf(`select * from ${internal("partitions")} where id in ${partitions}`),
    limiters: await rowsOf(
      `select l.* from ${internal("limiters")} l join ${internal("partitions")} p on l.id = any(p.limiter_ids)
       where p.id in ${partitions}`,
    ),
    freed: await rowsOf(`select * from ${internal("freed")} limit 20`),
    arrivals: await rowsOf(`select * from ${internal("arrivals")} limit 20`),
    groups: await rowsOf("select * from dispatch_policy.groups limit 5"),
    "jobs of groups": await rowsOf("select * from dispatch_policy.group_jobs limit 5"),
    keyless: await rowsOf(`select * from ${internal("keyless_jobs")} limit 20`),
    replaced: await rowsOf(`select * from ${internal("replaced_jobs")} limit 20`),
    locks: await rowsOf(
      `select a.pid, a.state, a.query, a.xact_start, now() from pg_stat_activity a
       where a.datname = current_database() and a.xact_start < now() - interval '1 second'`,
    ),
    workers: await rowsOf("select * from dispatch_policy.workers order by 1 limit 20"),
  };
}
