// What a history costs: a pass that admits 1,000 jobs which waited for a slot, their release, and reading what happened, with it
// and without.
import { medians, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld, threeGates } from "./world.ts";

const ROUNDS = Number(process.env.ROUNDS ?? 12);

for (const history of [false, true]) {
  const world = await makeWorld({ gates: threeGates({ max: 20 }), batch: 20, history });
  const names = keys(50);
  const [stage, admit, release, read]: [Timing[], Timing[], Timing[], Timing[]] = [[], [], [], []];
  /** What a tick loop does after a pass, as often as there is something to read. */
  const readAll = async () => {
    for (let n = 0; n < 3; n++)
      await world.query(
        "select e.* from dispatch_policy_internal.policies p, dispatch_policy_internal._consume_events(p.name, true) e",
      );
  };
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
    read.push(await world.timed(readAll));
  }
  say(`1,000 jobs of 50 partitions, ${history ? "with" : "without"} a history`, {
    stage: medians(stage),
    admit: medians(admit),
    release: medians(release),
    read: medians(read),
  });
  await world.close();
}
