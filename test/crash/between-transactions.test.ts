// A worker process that is killed between two transactions of a job's life: another one finishes what it began.
import test from "ava";
import { addPolicyJobs, type JobGroup } from "../../src/index.ts";
import { TABLES, work } from "../fixtures/crash/work.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";
import { startProcess } from "../helpers/worker-process.ts";

const RECOVERED = { withinMs: 90_000 };

/** After what the first process dies, and which statement says so. */
const MOMENTS: Record<string, string> = {
  "it routed": "._route(",
  "it admitted": "._admit(",
  "it fetched a job": "locked_by =",
  "a job ran and is to be completed": "update runs set finished_at",
  "it completed a job, and is to release it": 'delete from "graphile_worker"',
  "it recorded a failure, and is to park the job": "last_error =",
  "it released or parked": "._release(",
};

for (const [moment, statement] of Object.entries(MOMENTS)) {
  test(`killed after ${moment}: every job runs, and then their callback, nothing is left held`, async (t) => {
    const database = await testDatabase(t);
    const { pool } = database;
    await pool.query(TABLES);
    await pool.query("insert into go values (0)");
    await addPolicyJobs(
      pool,
      Array.from({ length: 5 }, (_, n) => ({ policy: work, payload: { account: "a", failsFirst: n === 0 } })),
      { then: { policy: work, payload: { account: "a" } } },
    );
    const first = await startProcess(t, database, "plain", statement);
    await first.gone;
    await startProcess(t, database, "plain");
    const look = `select
      (select count(*)::int from dispatch_policy.staged_jobs) as staged,
      (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
      (select sum(in_flight)::int from dispatch_policy.limiters) as counted,
      (select count(*)::int from dispatch_policy.groups) as groups,
      (select count(*)::int from graphile_worker.jobs) as jobs`;
    await until(
      "everything is done",
      async () => Object.values((await pool.query(look)).rows[0]).every((n) => n === 0),
      RECOVERED,
    );
    const { rows } = await pool.query(`select job_id, count(*)::int as runs, max(attempt) as attempts,
      bool_or(pid = ${first.pid}) as hit, (array_agg(counts))[1] as counts from runs group by job_id order by job_id::bigint`);
    t.is(rows.length, 6);
    const counts: JobGroup = rows[5].counts;
    t.is(counts.succeeded + counts.gone, 5, JSON.stringify(counts)); // nobody saw the end of one that the first completed
    t.true(rows[0].attempts >= 2, "its first attempt failed, or died");
    for (const { runs, hit } of rows.slice(1))
      t.true(runs === 1 || (hit && runs === 2), JSON.stringify(rows));
  });
}
