// An add whose job goes at once, beside one that is staged, routed and admitted by a pass, and beside a bare add.
import { say, timer } from "./timing.ts";
import { idleWorld, keys } from "./world.ts";

const TURNS = 300;

const names = keys(50);
const world = await idleWorld(names);
await world.isLed();

const { time, ratio, figures } = timer(world, ["at once", "stage", "route", "admit", "bare"]);
for (let turn = 0; turn < TURNS; turn++) {
  const key = names[turn % names.length]!;
  await time("bare", () => world.addBare(1, 1));
  const [job] = await time("at once", () => world.add(key, true));
  const went = await world.query("select from dispatch_policy_internal.in_flight_jobs where staged_id = $1", [
    job!.id,
  ]);
  if (went.length !== 1) throw new Error("it was staged");
  await world.endAll();
  await world.routeAll();
  await time("stage", () => world.add(key, false));
  await time("route", () => world.route());
  const { admitted } = await time("admit", () => world.admit());
  if (admitted !== 1) throw new Error(`${admitted} admitted, 1 expected`);
  await world.endAll();
  await world.routeAll();
}
say("one job", { addCost: ratio("at once", "bare"), ...figures() });
await world.close();
