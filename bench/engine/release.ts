// Release of 1,000 finished jobs: of 50 partitions, of 1,000, and with partitions that wait for what they free.
import { medians, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld, threeGates } from "./world.ts";

for (const [partitions, each, waiting] of [
  [50, 20, false],
  [1000, 1, false],
  [50, 20, true],
] as const) {
  const world = await makeWorld({ gates: threeGates(waiting ? { max: each } : {}), batch: each });
  const release: Timing[] = [];
  for (let round = 0; round < 12; round++) {
    await world.stage(jobsOf(keys(partitions), waiting ? 2 * each : each));
    await world.routeAll();
    await world.admit(partitions);
    const jobs = await world.query<{ job_id: string }>(
      "select job_id from dispatch_policy_internal.in_flight_jobs",
    );
    if (jobs.length !== 1000) throw new Error(`${jobs.length} in flight`);
    release.push(await world.timed(() => world.release(jobs.map(({ job_id }) => job_id))));
  }
  say(`release of 1,000 jobs of ${partitions} partitions${waiting ? ", all waited for" : ""}`, {
    release: medians(release),
  });
  await world.close();
}
