// npm run bench -- --fairness: tenants of short jobs beside tenants of long ones, with more to do than the worker gets
// through. Which part of the worker's time each has, where fairness counts jobs and where it counts work.
import { setTimeout as delay } from "node:timers/promises";
import { startChild } from "../harness/children.ts";
import { addInCalls, type FairBy, mixedPolicy, TASK } from "../harness/jobs.ts";
import { openSide } from "../harness/sides.ts";

export interface FairnessSize {
  /** How long the jobs of each tenant run, in milliseconds, and how many it has. */
  readonly tenants: Readonly<Record<string, { readonly ms: number; readonly jobs: number }>>;
  readonly warmUpSeconds: number;
  readonly windows: number;
  readonly secondsPerWindow: number;
}

export interface Shares {
  readonly tenant: string;
  readonly ms: number;
  readonly jobs: number;
  /** Of the seconds that all jobs ran: over all windows, and in the window with the least and the most. */
  readonly share: number;
  readonly least: number;
  readonly most: number;
}

/** Jobs that ended, and seconds they ran, by tenant. */
export type Worked = Record<string, { jobs: number; seconds: number }>;

const MOST_PARTS = 20;

export async function measureFairness(by: FairBy, size: FairnessSize): Promise<Shares[]> {
  const side = await openSide("governed", { policy: mixedPolicy(by), autovacuum: true });
  for (const [tenant, { ms, jobs }] of Object.entries(size.tenants))
    await addInCalls(side.utils, Array(jobs).fill({ identifier: TASK, payload: { tenant, ms } }));
  await side.pool.query("vacuum analyze");
  const worker = startChild("mixed.ts", { side: "governed", url: side.url, tuned: false, by });
  const worked = () => worker.ask<object, Worked>({});
  await worked(); // it is there
  await delay(size.warmUpSeconds * 1000);
  await worked();
  const windows: Worked[] = [];
  for (let window = 0; window < size.windows; window++) windows.push(await measureWindow(worked, size));
  await worker.stop();
  await side.close();
  return Object.entries(size.tenants).map(([tenant, { ms }]) => {
    const shares = windows.map((window) => shareOf(tenant, [window]));
    return {
      ...{ tenant, ms, jobs: windows.reduce((sum, window) => sum + (window[tenant]?.jobs ?? 0), 0) },
      ...{ share: shareOf(tenant, windows), least: Math.min(...shares), most: Math.max(...shares) },
    };
  });
}

/** A window in which a tenant ended no job says nothing of its share: a slow machine gets longer ones. */
async function measureWindow(worked: () => Promise<Worked>, { tenants, secondsPerWindow }: FairnessSize) {
  let window: Worked = {};
  for (let part = 0; part < MOST_PARTS; part++) {
    await delay(secondsPerWindow * 1000);
    for (const [tenant, { jobs, seconds }] of Object.entries(await worked())) {
      const before = window[tenant] ?? { jobs: 0, seconds: 0 };
      window = { ...window, [tenant]: { jobs: before.jobs + jobs, seconds: before.seconds + seconds } };
    }
    if (Object.keys(tenants).every((tenant) => window[tenant]?.jobs)) return window;
  }
  throw new Error(
    `not every tenant ended a job in ${MOST_PARTS * secondsPerWindow} s: ${JSON.stringify(window)}`,
  );
}

function shareOf(tenant: string, windows: readonly Worked[]): number {
  const all = windows.flatMap((window) => Object.entries(window));
  const seconds = (some: typeof all) => some.reduce((sum, [, { seconds }]) => sum + seconds, 0);
  return seconds(all.filter(([name]) => name === tenant)) / seconds(all);
}
