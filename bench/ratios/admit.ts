// The admission statement, as a tick sends it, on jobs that wait in as many partitions as a tick looks at, beside a bare
// graphile_worker.add_jobs of the same jobs. Three gates, one over the whole policy; none binds. Not measured: staging,
// routing, the tick loop.
import { jobsOf, keys, makeWorld } from "../engine/world.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";

export const admit: Ratio = {
  name: "admit",
  what: "admission ÷ bare add_jobs, in SQL",
  unit: "jobs/s",
  target: { atLeast: 0.5 },
  settings: { gates: 3 },
  size: "admit",
  async measure({ admit: size }) {
    const { partitions, jobsPerPartition } = size;
    const jobs = partitions * jobsPerPartition;
    const world = await makeWorld({ batch: jobsPerPartition });
    const pace = async (run: () => Promise<unknown>) => {
      await world.query("analyze graphile_worker._private_jobs"); // see stage-single.ts
      const { ms } = await world.timed(run);
      return (jobs / ms) * 1000;
    };
    const admitAll = async () => {
      const pass = await world.admit(partitions);
      if (pass.admitted !== jobs) throw new Error(`${JSON.stringify(pass)}, not ${jobs} admitted`);
    };
    const pairs = await measurePairs(size, {
      subject: async () => {
        await world.stage(jobsOf(keys(partitions), jobsPerPartition));
        await world.routeAll();
        return pace(admitAll);
      },
      baseline: () => pace(() => world.addBare(jobs, partitions)),
    });
    await world.close();
    return pairs;
  },
};
