// Jobs with a callback: 1,000 jobs are staged and released without any group, beside an open group, and in a group.
import { medians, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld } from "./world.ts";

const THEN = JSON.stringify({ policy: "bench", identifier: "bench", payload: { key: "then" } });

for (const which of ["no group is open", "beside an open group", "in a group"] as const) {
  const world = await makeWorld({ batch: 1000 });
  const group = (text: string) =>
    world.query("select count(*) from dispatch_policy.enqueue_group($1, 'replace', null, $2)", [text, THEN]);
  if (which === "beside an open group") {
    await group(world.batches([{ key: "other", runAt: "2100-01-01" }]));
    await world.routeAll();
  }
  const [stage, release]: Timing[][] = [[], []];
  for (let round = 0; round < 12; round++) {
    const text = world.batches(jobsOf(keys(50), 20));
    stage!.push(await world.timed(() => (which === "in a group" ? group(text) : world.stageText(text))));
    await world.routeAll();
    await world.admit(100);
    const jobs = await world.query<{ job_id: string }>(
      "select job_id from dispatch_policy_internal.in_flight_jobs order by job_id limit 1000",
    );
    if (jobs.length !== 1000) throw new Error(`${jobs.length} in flight`);
    release!.push(await world.timed(() => world.release(jobs.map(({ job_id }) => job_id))));
    await world.endAll(); // the callback
  }
  say(`1,000 jobs, ${which}`, { stage: medians(stage!), release: medians(release!) });
  await world.close();
}
