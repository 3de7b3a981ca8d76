// Many jobs by the public API: `addJobs` of makePolicyUtils, 10,000 jobs a call, beside that of makeWorkerUtils with the
// same jobs. With it: the work in JavaScript, the round trips, and the jobs that are returned. Not with it: making the
// utils, and routing, which is the tick's work. Each run has two new databases.
import { addInCalls, openPolicy, specsOf } from "../harness/jobs.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import { openSide, type SideName } from "../harness/sides.ts";

export const stageBulk: Ratio = {
  name: "stage_bulk",
  what: "staging in bulk ÷ addJobs of Graphile Worker",
  unit: "jobs/s",
  target: { atLeast: 1 },
  settings: { gates: 3 },
  size: "stageBulk",
  measure({ stageBulk: size }) {
    const specs = specsOf(size.jobs, size.partitions);
    const pace = async (name: SideName) => {
      const side = await openSide(name, { policy: openPolicy });
      await side.pool.query("checkpoint");
      const start = performance.now();
      await addInCalls(side.utils, specs, size.jobsPerCall);
      const ms = performance.now() - start;
      await side.close();
      return (size.jobs / ms) * 1000;
    };
    return measurePairs(size, { subject: () => pace("governed"), baseline: () => pace("plain") });
  },
};
