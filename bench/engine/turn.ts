// One turn: jobs finish, free their slots, and the next ones go. What a freed slot costs before its next job starts, beside a
// bare add of as many jobs, and what passes cost that find nothing to do, or few jobs. A release passes its slots on, as in workers with
// tick loops; what it leaves to a pass is routed and admitted, and counts as `left`.
import { medians, ratio, say, type Timing } from "./timing.ts";
import { type BenchGate, idleWorld, jobsOf, keys, makeWorld } from "./world.ts";

const OWN: BenchGate[] = [
  { gate: "concurrency", kind: "concurrency", scope: "partition", max: 1 },
  { gate: "throttle", kind: "throttle", scope: "partition", rate: 1e6, per: 1 },
  { gate: "all", kind: "throttle", scope: "policy", rate: 1e6, per: 1 },
];
const SHARED: BenchGate[] = [
  { gate: "concurrency", kind: "concurrency", scope: "partition", max: 3 },
  { gate: "all", kind: "concurrency", scope: "policy", max: 20 },
];

interface Turns {
  readonly gates: BenchGate[];
  readonly partitions: number;
  readonly each: number;
  readonly jobs: number;
  readonly turns: number;
}

async function measure(what: string, { gates, partitions, each, jobs, turns }: Turns): Promise<void> {
  const world = await makeWorld({ gates });
  await world.stage(jobsOf(keys(partitions), each));
  await world.routeAll();
  await world.admit();
  await world.settle();
  const steps = ["release", "route", "admit", "bare", "idle route", "idle admit"] as const;
  const timings = new Map(steps.map((step) => [step, [] as Timing[]]));
  const time = async (step: (typeof steps)[number], run: () => Promise<unknown>): Promise<Timing> => {
    const { ms, cpu } = await world.timed(run);
    timings.get(step)!.push({ ms, cpu });
    return { ms, cpu };
  };
  const whole: Timing[] = [];
  const running = () =>
    world.query<{ job_id: string }>("select job_id from dispatch_policy.in_flight_jobs order by job_id");
  let left = 0;
  for (let turn = 0; turn < turns; turn++) {
    const before = await running();
    const ids = before.slice(0, jobs).map(({ job_id }) => job_id);
    await world.query("select graphile_worker.complete_jobs($1)", [ids]);
    const took = [await time("release", () => world.release(ids, true))];
    if ((await running()).length < before.length) {
      left++;
      took.push(await time("route", () => world.route()), await time("admit", () => world.admit()));
    }
    whole.push(took.reduce((a, b) => ({ ms: a.ms + b.ms, cpu: a.cpu + b.cpu })));
    if ((await running()).length !== before.length) throw new Error("a slot stayed free");
    await time("bare", () => world.addBare(jobs, 1));
    await time("idle route", () => world.route());
    await time("idle admit", () => world.admit());
  }
  const figures = [...timings].filter(([, its]) => its.length > 0).map(([step, its]) => [step, medians(its)]);
  say(what, { turnCost: ratio(whole, timings.get("bare")!), left, ...Object.fromEntries(figures) });
  await world.close();
}

await measure("own slot, one job", { gates: OWN, partitions: 1, each: 400, jobs: 1, turns: 150 });
for (const jobs of [1, 5, 20])
  await measure(`shared cap of 20, 50 partitions, ${jobs === 1 ? "one job" : `${jobs} jobs`}`, {
    ...{ gates: SHARED, partitions: 50, each: 100, jobs, turns: 80 },
  });

/** Jobs are staged and routed, and a pass admits them: one of each partition. */
async function passes(jobs: number, turns: number): Promise<void> {
  const names = keys(50);
  const world = await idleWorld(names);
  const timings: Record<"pass" | "bare", Timing[]> = { pass: [], bare: [] };
  for (let turn = 0; turn < turns; turn++) {
    await world.stage(
      Array.from({ length: jobs }, (_, n) => ({ key: names[(turn * jobs + n) % names.length]! })),
    );
    await world.routeAll();
    let admitted = 0;
    const pass = async () => {
      admitted = (await world.admit()).admitted;
    };
    timings.pass.push(await world.timed(pass));
    if (admitted !== jobs) throw new Error(`${admitted} went, not ${jobs}`);
    timings.bare.push(await world.timed(() => world.addBare(jobs, jobs)));
    await world.endAll();
    await world.routeAll();
  }
  const { pass, bare } = timings;
  const what = jobs === 1 ? "a pass of one job" : `a pass of ${jobs} jobs of ${jobs} partitions`;
  say(what, { passCost: ratio(pass, bare), pass: medians(pass), bare: medians(bare) });
  await world.close();
}

for (const jobs of [1, 7, 20]) await passes(jobs, 80);
