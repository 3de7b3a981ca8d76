// One turn under a full scope: jobs finish, free their slots, are routed and the next are admitted. What a freed
// slot costs before its next job starts, and what a pass costs that finds nothing to do.
import { say, timer } from "./timing.ts";
import { jobsOf, keys, makeWorld } from "./world.ts";

const SLOTS = 20;
const TURNS = 60;

const world = await makeWorld({
  gates: [
    { gate: "concurrency", kind: "concurrency", scope: "partition", max: 3 },
    { gate: "all", kind: "concurrency", scope: "policy", max: SLOTS },
  ],
});
await world.stage(jobsOf(keys(50), 400));
await world.routeAll();
await world.admit();
await world.settle();

for (const jobs of [1, 5, SLOTS]) {
  const { time, figures } = timer(world, ["idle route", "idle admit", "release", "route", "admit"]);
  for (let turn = 0; turn < TURNS; turn++) {
    const running = await world.query<{ job_id: string }>(
      "select job_id from dispatch_policy_internal.in_flight_jobs order by job_id limit $1",
      [jobs],
    );
    const ids = running.map(({ job_id }) => job_id);
    await world.query("select graphile_worker.complete_jobs($1)", [ids]);
    await time("release", () => world.release(ids));
    await time("route", () => world.route());
    const { admitted } = await time("admit", () => world.admit());
    if (admitted !== jobs) throw new Error(`${admitted} admitted, ${jobs} expected`);
    await time("idle route", () => world.route());
    await time("idle admit", () => world.admit());
  }
  say(`turn of ${jobs} of ${SLOTS} slots`, figures());
}
await world.close();
