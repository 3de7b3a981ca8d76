// The tick of 250 jobs over 50 partitions as staging and the partitions beside it grow, and what an idle loop asks.
import { addIdlePartitions, tick, worldWithBacklog } from "./backlog.ts";
import { medians, ratio, say, type Timing } from "./timing.ts";
import type { World } from "./world.ts";

const ROUNDS = Number(process.env.ROUNDS ?? 25);

async function ticks(world: World, rounds = ROUNDS): Promise<Timing[]> {
  const timings: Timing[] = [];
  for (let round = 0; round < rounds + 6; round++) {
    const timing = await world.timed(() => tick(world));
    if (round >= 6) timings.push(timing);
  }
  return timings;
}

let smallest: Timing[] = [];
for (const each of [200, 2000, 20_000]) {
  const world = await worldWithBacklog(each);
  const timings = await ticks(world);
  if (smallest.length === 0) smallest = timings;
  say(`tick with ${50 * each} jobs staged in its partitions`, {
    tick: medians(timings),
    times: ratio(timings, smallest),
  });
  await world.close();
}

const world = await worldWithBacklog(1000);
const alone = await ticks(world);
await addIdlePartitions(world, 100_000);
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
  "update dispatch_policy_internal.partitions set due_at = 'infinity', denied_until = '-infinity', blocked_on = null where eligible_at <= now()",
);
say("beside them", {
  emptyTick: await repeat("select * from dispatch_policy_internal._admit($1, null, 50, null, false)", [
    world.task,
  ]),
  nextEligibleAt: await repeat("select dispatch_policy_internal._next_eligible_at($1, null)", [world.task]),
  lease: await repeat("select * from dispatch_policy_internal._lease('me', array[$1], null, '15 s', true)", [
    world.task,
  ]),
});
await world.close();
