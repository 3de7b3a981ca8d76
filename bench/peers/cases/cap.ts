// Jobs of many tenants wait when the worker starts, and at most three of a tenant may run at once; beside it, the same
// jobs without that limit, which says what the limit costs.
import type { Case, Figures } from "../case.ts";
import { jobsOf, keysOf, openContest } from "../contest.ts";
import { overruns, throughput } from "../seen.ts";
import type { CapSize } from "../sizes.ts";
import type { Limit, System } from "../system.ts";

export const CAP = 3;

export const uncapped: Case = {
  name: "uncapped",
  what: "jobs of many tenants, no limit",
  limit: {},
  size: "cap",
  run: (system, { cap }) => run(system, {}, cap),
};

export const cap: Case = {
  name: "cap",
  what: "jobs of many tenants, at most 3 at once of each",
  limit: { atOnce: CAP },
  size: "cap",
  run: (system, { cap }) => run(system, { atOnce: CAP }, cap),
};

async function run(system: System, limit: Limit, size: CapSize): Promise<Figures> {
  const seen = await runBacklog(system, limit, size);
  const { most, above } = overruns(seen, CAP);
  return {
    jobsPerSecond: throughput(seen),
    mostAtOnce: most,
    startsAbove: above,
    ended: seen.filter(({ end }) => end !== undefined).length,
  };
}

/** Until it is worked off, or the time is over. */
export async function runBacklog(
  system: System,
  limit: Limit,
  { tenants, jobsPerTenant, workMs, withinMs }: CapSize,
) {
  const keys = keysOf(tenants);
  const contest = await openContest(system, { keys, limit, workMs });
  const jobs = jobsOf(keys, jobsPerTenant);
  await contest.add(jobs);
  await contest.startWorker();
  await contest.wait({ ends: jobs.length, withinMs });
  const seen = await contest.seen();
  await contest.close();
  return seen;
}
