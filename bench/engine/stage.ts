// Staging in bulk and one at a time, beside graphile_worker.add_jobs and add_job of the same.
import { medians, ratio, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld } from "./world.ts";

const ROUNDS = Number(process.env.ROUNDS ?? 3);
const JOBS = Number(process.env.JOBS ?? 100_000);
const ADD_JOBS = `select count(*) from graphile_worker.add_jobs(array(
  select row(j.task, j.payload, null, null, null, null, null, null)::graphile_worker.job_spec
  from json_to_recordset($1::json -> 0 -> 'jobs') j (task text, payload json)))`;

for (const partitions of [1, 1000, JOBS]) {
  const world = await makeWorld();
  const text = world.batches(jobsOf(keys(partitions), JOBS / partitions));
  const staged: Timing[] = [];
  const added: Timing[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await world.query("truncate dispatch_policy_internal.staged_jobs, dispatch_policy_internal.arrivals");
    await world.query("truncate graphile_worker._private_jobs");
    await world.query("checkpoint");
    staged.push(await world.timed(() => world.stageText(text)));
    await world.query("checkpoint");
    added.push(await world.timed(() => world.query(ADD_JOBS, [text])));
  }
  say(`staging of ${JOBS} jobs of ${partitions} partitions in one call`, {
    stage: medians(staged),
    addJobs: medians(added),
    paceOfAddJobs: ratio(added, staged),
  });
  await world.close();
}

const world = await makeWorld();
const one = world.batches([{ key: "one" }]);
const ways = {
  addJobOfGraphileWorker: () =>
    world.query("select id from graphile_worker.add_job($1, $2)", ["other", '{"key":"one"}']),
  stage: () => world.stageText(one),
  addJobInSql: () =>
    world.query("select id from dispatch_policy.add_job($1, $2)", [world.task, '{"key":"one"}']),
};
const timings: Record<string, Timing[]> = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
for (let round = 0; round < 200; round++)
  for (const [way, run] of Object.entries(ways)) timings[way]!.push(await world.timed(run));
for (const [way, times] of Object.entries(timings))
  say(`one job by ${way}`, {
    took: medians(times),
    paceOfAddJob: ratio(timings.addJobOfGraphileWorker!, times),
  });
await world.close();
