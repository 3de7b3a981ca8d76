// What a history costs: a pass that admits 1,000 jobs which waited for a slot, and their release, with it and without.
import { medians, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld, threeGates } from "./world.ts";

const ROUNDS = Number(process.env.ROUNDS ?? 12);

for (const history of [false, true]) {
  const world = await makeWorld({ gates: threeGates({ max: 20 }), batch: 20, history });
  const names = keys(50);
  const [stage, admit, release]: [Timing[], Timing[], Timing[]] = [[], [], []];
  await world.stage(jobsOf(names, 40));
  await world.routeAll();
  await world.admit(50);
  for (let round = 0; round < ROUNDS; round++) {
    const jobs = await world.query<{ job_id: string }>(
      "select job_id from dispatch_policy_internal.in_flight_jobs",
    );
    if (jobs.length !== 1000) throw new Error(`${jobs.length} in flight`);
    release.push(await world.timed(() => world.release(jobs.map(({ job_id }) => job_id))));
    stage.push(await world.timed(() => world.stage(jobsOf(names, 20))));
    await world.routeAll();
    admit.push(await world.timed(() => world.admit(50)));
  }
  say(`1,000 jobs of 50 partitions, ${history ? "with" : "without"} a history`, {
    stage: medians(stage),
    admit: medians(admit),
    release: medians(release),
  });
  await world.close();
}
