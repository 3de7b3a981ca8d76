// What small turns cost, by the processor time of the server's backend, beside a bare `add_jobs` of one job there: a release
// that passes its slot on, of a partition's own cap or one that fifty partitions share, and an add whose job goes at once.
import { OWN, passedOn, SHARED, waitingWorld } from "../engine/small-turns.ts";
import type { Timing } from "../engine/timing.ts";
import { type BenchGate, idleWorld, keys, type World } from "../engine/world.ts";
import type { Pairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import type { Sizes } from "../harness/sizes.ts";
import { median } from "../harness/statistics.ts";

/** Processor time, or time where the system does not tell it. */
const msOf = ({ ms, cpu }: Timing) => (Number.isNaN(cpu) ? ms : cpu);

/** By turns: where turns of one kind follow one another, a bare add finds all that it reads in the processor's caches. */
async function pairsOf(
  world: World,
  { runs, warmUps, turns }: Sizes["smallTurns"],
  turn: () => Promise<Timing>,
): Promise<Pairs> {
  const subject: number[] = [];
  const baseline: number[] = [];
  for (let run = -warmUps; run < runs; run++) {
    const took: number[] = [];
    const bare: number[] = [];
    for (let n = 0; n < turns; n++) {
      took.push(msOf(await turn()));
      bare.push(msOf(await world.timed(() => world.addBare(1, 1))));
    }
    if (run < 0) continue;
    subject.push(median(took));
    baseline.push(median(bare));
  }
  await world.close();
  return { subject, baseline };
}

const turnCost = (
  name: string,
  whose: string,
  gates: BenchGate[],
  partitions: number,
  atMost: number,
): Ratio => ({
  ...{ name, what: `a release that passes ${whose} on ÷ a bare add_jobs, processor time`, unit: "ms" },
  ...{ target: { atMost }, settings: { partitions, gates: gates.length }, size: "smallTurns" },
  async measure({ smallTurns: size }) {
    const jobs = (size.runs + size.warmUps) * size.turns;
    const world = await waitingWorld(gates, partitions, Math.ceil(jobs / partitions) + 3);
    return pairsOf(world, size, () => passedOn(world, 1));
  },
});

export const turnCostOwn = turnCost("turn_cost", "a partition's own slot", OWN, 1, 1.7);
export const turnCostShared = turnCost("turn_cost_shared", "a shared slot", SHARED, 50, 1.9);

export const addCost: Ratio = {
  ...{
    name: "add_cost",
    what: "an add whose job goes at once ÷ a bare add_jobs, processor time",
    unit: "ms",
  },
  ...{ target: { atMost: 1.5 }, settings: { partitions: 50, gates: 3 }, size: "smallTurns" },
  async measure({ smallTurns: size }) {
    const names = keys(50);
    const world = await idleWorld(names);
    await world.isLed();
    let n = 0;
    return pairsOf(world, size, async () => {
      const timing = await world.timed(() => world.add(names[n++ % names.length]!, true));
      const { length } = await world.query("select from dispatch_policy.in_flight_jobs");
      if (length !== 1) throw new Error(`${length} jobs went`);
      await world.endAll();
      await world.routeAll();
      return timing;
    });
  },
};
