// An add whose job goes at once, beside one that is staged, routed and admitted by a pass, and beside a bare add.
import { say, timer } from "./timing.ts";
import { jobsOf, keys, makeWorld } from "./world.ts";

const TURNS = 300;

const world = await makeWorld();
const names = keys(50);
await world.stage(jobsOf(names));
await world.routeAll();
await world.admit();
await world.endAll();
await world.settle();
await world.query(
  `insert into dispatch_policy_internal.leases (policy, shard, holder, expires_at)
   select $1, 'default', 'bench', clock_timestamp() + interval '20 seconds'`,
  [world.task],
);
await world.query(
  `insert into dispatch_policy_internal.workers (pool_id, slots, tasks, stale_after, stale_at)
   values ('bench', 100, $1, '1 day', 'infinity')`,
  [[world.task]],
);

const add = (key: string, atOnce: boolean) => {
  const [batch] = JSON.parse(world.batches([{ key }]));
  return world.query<{ id: string }>("select * from dispatch_policy.enqueue($1, 0, $2, $3, 'replace', $4)", [
    world.task,
    JSON.stringify(batch.partitions),
    JSON.stringify(batch.jobs),
    atOnce,
  ]);
};
const { time, figures } = timer(world, ["at once", "stage", "route", "admit", "bare"]);
for (let turn = 0; turn < TURNS; turn++) {
  const key = names[turn % names.length]!;
  await time("bare", () => world.addBare(1, 1));
  const [job] = await time("at once", () => add(key, true));
  const went = await world.query("select from dispatch_policy_internal.in_flight_jobs where staged_id = $1", [
    job!.id,
  ]);
  if (went.length !== 1) throw new Error("it was staged");
  await world.endAll();
  await world.routeAll();
  await time("stage", () => add(key, false));
  await time("route", () => world.route());
  const { admitted } = await time("admit", () => world.admit());
  if (admitted !== 1) throw new Error(`${admitted} admitted, 1 expected`);
  await world.endAll();
  await world.routeAll();
}
say("one job", figures());
await world.close();
