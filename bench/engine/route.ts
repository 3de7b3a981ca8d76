// Routing: 10,000 brand-new partitions, arrivals of known ones with unchanged limits, a hot tenant's arrivals.
import { medians, say, type Timing } from "./timing.ts";
import { jobsOf, keys, makeWorld } from "./world.ts";

const NEW = Number(process.env.PARTITIONS ?? 10_000);
const fresh = await makeWorld();
const staged: Timing[] = [];
const routed: Timing[] = [];
for (let round = 0; round < 3; round++) {
  const text = fresh.batches(jobsOf(keys(NEW, `round-${round}-`)));
  staged.push(await fresh.timed(() => fresh.stageText(text)));
  routed.push(await fresh.timed(() => fresh.route(NEW)));
}
say(`${NEW} brand-new partitions`, { stage: medians(staged), route: medians(routed) });

const known: Timing[] = [];
const hot: Timing[] = [];
for (let round = 0; round < 9; round++) {
  await fresh.stage(jobsOf(keys(1000, "round-0-")));
  known.push(await fresh.timed(() => fresh.route()));
  for (let call = 0; call < 200; call++) await fresh.stage([{ key: "round-1-0" }]);
  hot.push(await fresh.timed(() => fresh.route()));
}
say("route of 1,000 arrivals of known partitions", { route: medians(known) });
say("route of 200 arrivals of one hot tenant", { route: medians(hot) });
await fresh.close();
