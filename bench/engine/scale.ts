// The tick of 250 jobs over 50 partitions as staging and the partitions beside it grow, and what an idle loop asks.
import { jobsOf, keys, makeWorld, medians, ratio, say, type Timing, type World } from "./world.ts";

const ROUNDS = Number(process.env.ROUNDS ?? 25);

async function ticks(world: World, rounds = ROUNDS): Promise<Timing[]> {
  const timings: Timing[] = [];
  for (let round = 0; round < rounds + 6; round++) {
    const timing = await world.timed(async () => {
      await world.route();
      return world.admit(50);
    });
    if (timing.result.admitted !== 250) throw new Error(JSON.stringify(timing.result));
    if (round >= 6) timings.push(timing);
  }
  return timings;
}

async function ready(each: number): Promise<World> {
  const world = await makeWorld({ batch: 5 });
  await world.stage(jobsOf(keys(50)));
  await world.routeAll();
  await world.stageMany(each);
  await world.query(
    "update dispatch_policy._private_partitions set head_priority = -1, head_run_at = '-infinity', head_id = 0, due_at = now()",
  );
  await world.settle();
  return world;
}

let smallest: Timing[] = [];
for (const each of [200, 2000, 20_000]) {
  const world = await ready(each);
  const timings = await ticks(world);
  if (smallest.length === 0) smallest = timings;
  say(`tick with ${50 * each} jobs staged in its partitions`, {
    tick: medians(timings),
    times: ratio(timings, smallest),
  });
  await world.close();
}

const world = await ready(1000);
const alone = await ticks(world);
await world.query(
  `insert into dispatch_policy._private_partitions
     (id, policy_id, key, limiter_ids, due_at, denied_until, blocked_on, fair_key)
   select md5(n::text)::uuid, p.id, n::text, array[l.id, p.ahead_limiter_id],
     case n % 4 when 0 then 'infinity' when 1 then now() + interval '1 hour' else now() end,
     case n % 4 when 2 then now() + interval '1 hour' when 3 then 'infinity' else '-infinity' end,
     case n % 4 when 3 then l.id end, random()
   from generate_series(1, 100000) n, dispatch_policy._private_policies p, dispatch_policy._private_limiters l
   where l.gate = 'all'`,
);
await world.settle();
const beside = await ticks(world);
say("tick beside 100,000 partitions asleep, due later, throttled or blocked", {
  tick: medians(beside),
  times: ratio(beside, alone),
});

const repeat = async (text: string, values: unknown[] = []) => {
  const timings: Timing[] = [];
  for (let round = 0; round < 21; round++) timings.push(await world.timed(() => world.query(text, values)));
  return medians(timings);
};
await world.query(
  "update dispatch_policy._private_partitions set due_at = 'infinity', denied_until = '-infinity', blocked_on = null where eligible_at <= now()",
);
say("beside them", {
  emptyTick: await repeat("select * from dispatch_policy._admit($1, null, 50, null, false)", [world.task]),
  nextEligibleAt: await repeat("select dispatch_policy._next_eligible_at($1, null)", [world.task]),
  lease: await repeat("select * from dispatch_policy._lease('me', array[$1], null, '15 s', true)", [
    world.task,
  ]),
});
await world.close();
