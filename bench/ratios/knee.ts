// How much a worker process takes: the highest steady load before the median from adding to start doubles, governed beside
// plain. The study `--limits` has the steps; these are finer.
import { SLOTS } from "../harness/children/worker.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import { measureLimits } from "../studies/limits.ts";

export const knee: Ratio = {
  name: "knee",
  what: "the highest steady load before the median wait doubles, governed ÷ plain",
  unit: "jobs/s",
  target: { atLeast: 1 },
  settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, gates: 3 },
  size: "knee",
  measure: ({ knee: size }) =>
    measurePairs(size, {
      subject: async () => (await measureLimits("governed", size)).knee,
      baseline: async () => (await measureLimits("plain", size)).knee,
    }),
};
