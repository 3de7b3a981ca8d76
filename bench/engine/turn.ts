// One turn: jobs finish, free their slots, and the next ones go. What a freed slot costs before its next job starts, beside a
// bare add of as many jobs, and what passes cost that find nothing to do, or few jobs. A release passes its slots on, as in workers with
// tick loops; what it leaves to a pass is routed and admitted, and counts as `left`.
import { OWN, passedOn, SHARED, waitingWorld } from "./small-turns.ts";
import { medians, ratio, say, type Timing } from "./timing.ts";
import { type BenchGate, idleWorld, keys } from "./world.ts";

interface Turns {
  readonly gates: BenchGate[];
  readonly partitions: number;
  readonly each: number;
  readonly jobs: number;
  readonly turns: number;
}

async function measure(what: string, { gates, partitions, each, jobs, turns }: Turns): Promise<void> {
  const world = await waitingWorld(gates, partitions, each);
  const steps = ["release", "route", "admit", "bare", "idle route", "idle admit"] as const;
  const timings = new Map(steps.map((step) => [step, [] as Timing[]]));
  const time = async (step: (typeof steps)[number], run: () => Promise<unknown>): Promise<Timing> => {
    const { ms, cpu } = await world.timed(run);
    timings.get(step)!.push({ ms, cpu });
    return { ms, cpu };
  };
  const whole: Timing[] = [];
  let left = 0;
  for (let turn = 0; turn < turns; turn++) {
    const took: Timing[] = [];
    const release = await passedOn(world, jobs, async (free) => {
      if (free === 0) return;
      left++;
      took.push(await time("route", () => world.route()));
      let admitted = 0;
      took.push(
        await time("admit", async () => {
          ({ admitted } = await world.admit());
        }),
      );
      if (admitted !== free) throw new Error("a slot stayed free");
    });
    timings.get("release")!.push(release);
    whole.push([release, ...took].reduce((a, b) => ({ ms: a.ms + b.ms, cpu: a.cpu + b.cpu })));
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
