// How soon a tenant's freed slot has its next job, in a worker with slots to spare: a few tenants with jobs waiting, and
// three at once of each.
import { quantile } from "../../harness/statistics.ts";
import type { Case } from "../case.ts";
import { overruns, turnarounds } from "../seen.ts";
import { CAP, runBacklog } from "./cap.ts";

export const slot: Case = {
  name: "slot",
  what: "a tenant's freed slot to its next start, at most 3 at once",
  limit: { atOnce: CAP },
  size: "slot",
  async run(system, { slot: size }) {
    const seen = await runBacklog(system, { atOnce: CAP }, size);
    const took = turnarounds(seen);
    const { most, above } = overruns(seen, CAP);
    return {
      p50Ms: quantile(took, 0.5),
      p95Ms: quantile(took, 0.95),
      mostAtOnce: most,
      startsAbove: above,
      samples: took.length,
    };
  },
};
