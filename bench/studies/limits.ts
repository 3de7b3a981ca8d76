// npm run bench -- --limits: how much a worker process takes. The load is raised step by step until jobs wait twice as long
// from adding to start as under the first one, at the median, or until they are added faster than they start.
import { type Heard, openLoad } from "../harness/load.ts";
import type { SideName } from "../harness/sides.ts";

export interface LimitsSize {
  readonly firstRate: number;
  readonly factor: number;
  readonly mostSteps: number;
  readonly secondsPerStep: number;
  readonly tenants: number;
}

export interface Limits {
  readonly steps: readonly Heard[];
  /** The highest rate before the knee; the first one, where even that is too much. */
  readonly knee: number;
}

/** Less started than this: jobs are added faster than they start. */
const KEPT = 0.95;

export async function measureLimits(name: SideName, size: LimitsSize): Promise<Limits> {
  const load = await openLoad(name);
  await load.run({ rate: size.firstRate, seconds: size.secondsPerStep, tenants: size.tenants }); // plans and caches
  await load.drained();
  const steps: Heard[] = [];
  let rate = size.firstRate;
  for (let n = 0; n < size.mostSteps; n++) {
    const step = await load.run({ rate, seconds: size.secondsPerStep, tenants: size.tenants });
    steps.push(step);
    if (!isWithin(step, steps[0] as Heard)) break;
    await load.drained();
    rate *= size.factor;
  }
  await load.close();
  const within = steps.filter((step) => isWithin(step, steps[0] as Heard));
  return { steps, knee: within.at(-1)?.rate ?? size.firstRate };
}

function isWithin({ p50, kept }: Heard, first: Heard): boolean {
  return kept >= KEPT && p50 <= 2 * first.p50;
}
