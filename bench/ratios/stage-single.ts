// One job after the other by the public API on one connection: `addJob` of makePolicyUtils beside that of
// makeWorkerUtils. Each is a transaction that is flushed to disk. All jobs are of one partition; routing is not measured.
// Before each turn the table added to is analyzed, and one job added that does not count: Graphile Worker's add_job walks
// a table that has grown unseen by autovacuum (0.3 to 0.8 ms a job within 2,500), which would flatter us.
import { openPolicy, specsOf, TASK } from "../harness/jobs.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import { openSide, type Side } from "../harness/sides.ts";

export const stageSingle: Ratio = {
  name: "stage_single",
  what: "staging one at a time ÷ addJob of Graphile Worker",
  unit: "jobs/s",
  target: { atLeast: 1 },
  settings: { connections: 1, gates: 3 },
  size: "stageSingle",
  async measure({ stageSingle: size }) {
    const governed = await openSide("governed", { policy: openPolicy, connections: 1 });
    const plain = await openSide("plain", { policy: openPolicy, connections: 1 });
    const specs = specsOf(size.jobs, 1);
    const pace = async ({ utils, pool }: Side, table: string) => {
      await pool.query(`analyze ${table}`);
      await utils.addJob(TASK, { tenant: "tenant-0" }); // plans anew
      const start = performance.now();
      for (const { payload } of specs) await utils.addJob(TASK, payload);
      return (size.jobs / (performance.now() - start)) * 1000;
    };
    const pairs = await measurePairs(size, {
      subject: () => pace(governed, "dispatch_policy_internal.staged_jobs"),
      baseline: () => pace(plain, "graphile_worker._private_jobs"),
    });
    await governed.close();
    await plain.close();
    return pairs;
  },
};
