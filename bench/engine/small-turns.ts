// Releases that pass their slots on.
import type { Timing } from "./timing.ts";
import { type BenchGate, jobsOf, keys, makeWorld, type World } from "./world.ts";

export const OWN: BenchGate[] = [
  { gate: "concurrency", kind: "concurrency", scope: "partition", max: 1 },
  { gate: "throttle", kind: "throttle", scope: "partition", rate: 1e6, per: 1 },
  { gate: "all", kind: "throttle", scope: "policy", rate: 1e6, per: 1 },
];
export const SHARED: BenchGate[] = [
  { gate: "concurrency", kind: "concurrency", scope: "partition", max: 3 },
  { gate: "all", kind: "concurrency", scope: "policy", max: 20 },
];

/** As many jobs of each partition wait, but for those that the gates let go. */
export async function waitingWorld(gates: BenchGate[], partitions: number, each: number): Promise<World> {
  const world = await makeWorld({ gates });
  await world.stage(jobsOf(keys(partitions), each));
  await world.routeAll();
  await world.admit();
  await world.settle();
  return world;
}

const inFlight = (world: World) =>
  world.query<{ job_id: string }>("select job_id from dispatch_policy.in_flight_jobs order by job_id");

/** The oldest jobs end. `afterwards` gets to know how many slots stay free; without it, none may. */
export async function passedOn(
  world: World,
  jobs: number,
  afterwards = async (free: number): Promise<void> => {
    if (free > 0) throw new Error(`${free} slots were not passed on`);
  },
): Promise<Timing> {
  const before = await inFlight(world);
  const ids = before.slice(0, jobs).map(({ job_id }) => job_id);
  await world.query("select graphile_worker.complete_jobs($1)", [ids]);
  const { ms, cpu } = await world.timed(() => world.release(ids, true));
  await afterwards(before.length - (await inFlight(world)).length);
  return { ms, cpu };
}
