// A pool that could not record that a job ended shuts down, and leaves the job locked.
import test from "ava";
import { definePolicy } from "../../src/index.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});

test("a pool that shuts down with a job locked counts as dead, not as gone: the job runs again", async (t) => {
  const worker = await startWorker(t, {
    policies: [work],
    tasks: { work: async () => {} },
    worker: { completeJobBatchDelay: 1 },
  });
  const { pool, row } = worker;
  await pool.query(`create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$;
    create trigger refuse before delete on graphile_worker._private_jobs for each row execute function refuse()`);
  await worker.utils.addJob("work", { account: "a" });
  await worker.runner.promise; // it shuts itself down
  await worker.everythingIsReleased();
  const { locked_by: left } = await row("select locked_by from graphile_worker.jobs");
  t.deepEqual((await row("select pool_id from dispatch_policy.workers")).pool_id, left);

  await pool.query("drop trigger refuse on graphile_worker._private_jobs");
  await pool.query(
    "update dispatch_policy._private_workers set stale_at = clock_timestamp() - interval '1 second'",
  );
  await pool.query("select dispatch_policy._worker_alive('judge', 1, '{work}', 'host', 1, '1 second', '0')");
  await pool.query(
    "update dispatch_policy._private_workers set unbroken_since = unbroken_since - interval '1 hour' where pool_id = 'judge'",
  );
  t.deepEqual(await row("select * from dispatch_policy._sweep_workers('judge')"), { pools: 1, jobs: 1 });
  const again = await startWorker(t, {
    database: worker.database,
    policies: [work],
    tasks: { work: async () => {} },
  });
  await again.sees("job:success");
  await until(
    "the job is gone",
    async () => (await pool.query("select from graphile_worker.jobs")).rows.length === 0,
  );
  await again.everythingIsReleased();
});
