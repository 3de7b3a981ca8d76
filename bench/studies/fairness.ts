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
  for (let window = 0; window < size.windows; window++) {
    await delay(size.secondsPerWindow * 1000);
    windows.push(await worked());
  }
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

function shareOf(tenant: string, windows: readonly Worked[]): number {
  const all = windows.flatMap((window) => Object.entries(window));
  const seconds = (some: typeof all) => some.reduce((sum, [, { seconds }]) => sum + seconds, 0);
  return seconds(all.filter(([name]) => name === tenant)) / seconds(all);
}
