// 100,000 partitions, a million staged jobs and 10,000 in flight, as operators and the doctor meet them.
import { jobsOf, keys, makeWorld } from "./world.ts";

const PARTITIONS = Number(process.env.PARTITIONS ?? 100_000);
const EACH = 10;
const AT_ONCE = 10_000;
export const ROUNDS = Number(process.env.ROUNDS ?? 7);

/** A tenth of the partitions have their job in flight, and the cap over the policy is full. */
export async function makeCrowd(partitions = PARTITIONS, { history = false } = {}) {
  const world = await makeWorld({
    history,
    gates: [
      { gate: "own", kind: "concurrency", scope: "partition", max: 1 },
      { gate: "all", kind: "concurrency", scope: "policy", max: partitions / 10 },
    ],
    batch: 1,
  });
  for (let from = 0; from < partitions; from += AT_ONCE) {
    await world.stage(jobsOf(keys(Math.min(AT_ONCE, partitions - from), `p${from / AT_ONCE}-`)));
    await world.routeAll();
  }
  await world.stageMany(EACH - 1);
  await world.settle();
  for (let admitted = 1; admitted > 0; ) ({ admitted } = await world.admit(1000));
  return world;
}
