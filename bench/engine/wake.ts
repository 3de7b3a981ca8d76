// One job of many waiting partitions at a time: release, route (which wakes) and tick; and a shared throttle that
// 10,000 partitions wait for: how often each is looked at before it gets a job.
import { medians, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld } from "./world.ts";

for (const waiting of [1000, 10_000, 100_000]) {
  const world = await makeWorld({
    gates: [{ gate: "one", kind: "concurrency", scope: "policy", max: 1 }],
  });
  await world.stage(jobsOf(keys(1)));
  await world.routeAll();
  await world.admit();
  await world.query(
    `insert into dispatch_policy_internal.partitions
       (id, policy_id, key, limiter_ids, due_at, denied_until, blocked_on, fair_key, looked_at, decayed_at, head_priority)
     select md5(n::text)::uuid, q.policy_id, 'w' || n, q.limiter_ids, now(), 'infinity', q.limiter_ids[1], mod(n * 0.6180339887, 1), now(), now(), -1
     from generate_series(1, $1::int) n, dispatch_policy_internal.partitions q`,
    [waiting],
  );
  await world.stageMany(1, "q.key like 'w%'");
  await world.settle();
  const release: Timing[] = [];
  const route: Timing[] = [];
  const tick: Timing[] = [];
  for (let turn = 0; turn < 40; turn++) {
    const jobs = await world.query<{ job_id: string }>(
      "select job_id from dispatch_policy_internal.in_flight_jobs",
    );
    if (jobs.length !== 1) throw new Error(`${jobs.length} in flight`);
    release.push(await world.timed(() => world.release(jobs.map(({ job_id }) => job_id))));
    route.push(await world.timed(() => world.route()));
    tick.push(await world.timed(() => world.admit()));
  }
  say(`${waiting} partitions wait for one slot`, {
    release: medians(release),
    wake: medians(route),
    tick: medians(tick),
  });
  await world.close();
}

const world = await makeWorld({
  gates: [{ gate: "all", kind: "throttle", scope: "policy", rate: 50, per: 1 }],
});
await world.stage(jobsOf(keys(10_000)));
await world.routeAll();
await world.settle();
let visits = 0;
let admitted = 0;
let busy = 0;
const first = Date.now();
const start = performance.now();
while (performance.now() - start < 6000) {
  const { ms, result } = await world.timed(async () => {
    await world.route();
    return world.admit(100);
  });
  visits += result.claimed;
  admitted += result.admitted;
  if (result.claimed > 0) busy += ms;
  else await new Promise((resolve) => setTimeout(resolve, 2));
}
say("10,000 partitions wait for a shared throttle of 50 a second", {
  admitted,
  seconds: Number(((Date.now() - first) / 1000).toFixed(1)),
  visitsPerJob: Number((visits / admitted).toFixed(1)),
  visitsPerJobBeyondTheFirst: Number(((visits - 10_000) / admitted).toFixed(1)),
  busy: `${Math.round(busy / 60)} %`,
});
await world.close();
