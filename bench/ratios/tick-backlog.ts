// A tick (routing and admission) of 250 jobs over 50 partitions with many jobs staged in them, beside the same tick with
// few. Both worlds are there at once and are ticked by turns. Before each tick what it takes is staged again, which is
// not measured. Three gates, none binds.
import { tick, topUp, worldWithBacklog } from "../engine/backlog.ts";
import type { World } from "../engine/world.ts";
import { measurePairs, type Pairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import type { Sizes } from "../harness/sizes.ts";

const PARTITIONS = 50;

const common = {
  unit: "ms",
  target: { atMost: 1.2 },
  settings: { gates: 3, partitions: PARTITIONS, jobsPerTick: 250 },
} as const;

export const tickBacklog: Ratio = {
  ...common,
  name: "tick_backlog",
  what: "a tick with many jobs staged ÷ with few",
  size: "tickBacklog",
  measure: (sizes) => measure(sizes.tickBacklog),
};

export const tickBacklogLarge: Ratio = {
  ...common,
  name: "tick_backlog_large",
  what: "a tick with ten million jobs staged ÷ with few",
  size: "tickBacklogLarge",
  measure: (sizes) => measure(sizes.tickBacklogLarge),
};

async function measure(size: Sizes["tickBacklog"]): Promise<Pairs> {
  const many = await worldWithBacklog(size.staged / PARTITIONS);
  const few = await worldWithBacklog(size.stagedBaseline / PARTITIONS);
  const pairs = await measurePairs(size, { subject: () => timedTick(many), baseline: () => timedTick(few) });
  await many.close();
  await few.close();
  return pairs;
}

/** Milliseconds. */
export async function timedTick(world: World): Promise<number> {
  await topUp(world);
  return (await world.timed(() => tick(world))).ms;
}
