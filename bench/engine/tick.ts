// A tick (_route and _admit) of 250 jobs over 50 partitions, and admission of more, beside bare add_jobs of the same.
import { medians, ratio, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld } from "./world.ts";

const ROUNDS = Number(process.env.ROUNDS ?? 15);

for (const [partitions, each] of [
  [50, 5],
  [50, 20],
  [50, 100],
  [500, 10],
] as const) {
  const world = await makeWorld({ batch: each });
  const names = keys(partitions);
  await world.stage(jobsOf(names));
  await world.routeAll();
  await world.admit(partitions);
  const total = partitions * each;
  const bare: Timing[] = [];
  const route: Timing[] = [];
  const admit: Timing[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await world.stage(jobsOf(names, each));
    bare.push(await world.timed(() => world.addBare(total, partitions)));
    route.push(await world.timed(() => world.route()));
    const pass = await world.timed(() => world.admit(partitions));
    if (pass.result.admitted !== total)
      throw new Error(`admitted ${JSON.stringify(pass.result)}, not ${total}`);
    admit.push(pass);
  }
  say(`tick of ${total} jobs over ${partitions} partitions`, {
    route: medians(route),
    admit: medians(admit),
    addJobs: medians(bare),
    paceOfAddJobs: ratio(bare, admit),
  });
  await world.close();
}
