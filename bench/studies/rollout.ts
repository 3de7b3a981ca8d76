// npm run bench -- --rollout: how many jobs end while a deployment goes through. Half of the workers do not have this package
// yet: they run admitted jobs and free no slots. Beside that, the same with all workers governed. In both, how many jobs
// of a tenant ran at once in workers with the package.
import { setTimeout as delay } from "node:timers/promises";
import { startChild } from "../harness/children.ts";
import { addInCalls, cappedPolicy, TASK } from "../harness/jobs.ts";
import { moment } from "../harness/moment.ts";
import { openSide } from "../harness/sides.ts";
import type { Seen } from "./ahead.ts";

export interface RolloutSize {
  readonly tenants: number;
  /** Jobs that are added each second. */
  readonly rate: number;
  readonly jobMs: number;
  readonly seconds: number;
  /** Of each of the two workers. */
  readonly slots: number;
}

export interface Rollout {
  readonly added: number;
  readonly ended: number;
  /** Of these in the worker that may be an old one. */
  readonly endedInSecond: number;
  /** The most jobs of a tenant that ran at once in the workers that have the package. */
  readonly most: number;
}

const STEP_MS = 250;

/** @param mixed whether the second worker runs without this package */
export async function measureRollout(mixed: boolean, size: RolloutSize): Promise<Rollout> {
  const { tenants, rate, jobMs: ms, seconds, slots } = size;
  const side = await openSide("governed", { policy: cappedPolicy, autovacuum: true });
  const start = (name: "governed" | "plain") =>
    startChild("seen.ts", { side: name, url: side.url, tuned: false, slots, policies: "capped" });
  const workers = [start("governed"), start(mixed ? "plain" : "governed")];
  const all: [Seen, Seen] = [
    { starts: [], ends: [] },
    { starts: [], ends: [] },
  ];
  const look = async () => {
    for (const [n, worker] of workers.entries()) {
      const { starts, ends } = await worker.ask<object, Seen>({});
      all[n]?.starts.push(...starts);
      all[n]?.ends.push(...ends);
    }
  };
  await look(); // both run
  await addInCalls(side.utils, [{ identifier: TASK, payload: { tenant: "first" } }] as never);
  while (all.every(({ ends }) => ends.length === 0)) {
    await delay(STEP_MS);
    await look();
  }
  for (const { starts, ends } of all) {
    starts.length = 0;
    ends.length = 0;
  }
  let added = 0;
  const began = moment();
  for (let step = 1; step * STEP_MS <= seconds * 1000; step++) {
    const count = Math.round((rate * step * STEP_MS) / 1000) - added;
    const payloads = Array.from({ length: count }, (_, n) => ({ tenant: `t${(added + n) % tenants}`, ms }));
    await addInCalls(side.utils, payloads.map((payload) => ({ identifier: TASK, payload })) as never);
    added += count;
    await delay(Math.max(began + step * STEP_MS - moment(), 0));
  }
  await look();
  for (const worker of workers) await worker.stop();
  await side.close();
  const [first, second] = all.map(({ ends }) => ends.length) as [number, number];
  const most = mostAtOnce(mixed ? [all[0]] : all);
  return { added, ended: first + second, endedInSecond: second, most };
}

/** The most jobs of a tenant that ran at once, in all of these workers together. */
function mostAtOnce(workers: readonly Seen[]): number {
  const steps = workers.flatMap(({ starts, ends }) => [
    ...starts.map((one) => ({ ...one, by: 1 })),
    ...ends.map((one) => ({ ...one, by: -1 })),
  ]);
  const atOnce = new Map<string, number>();
  let most = 0;
  for (const { tenant, by } of steps.sort((a, b) => a.at - b.at || a.by - b.by)) {
    const now = (atOnce.get(tenant) ?? 0) + by;
    atOnce.set(tenant, now);
    most = Math.max(most, now);
  }
  return most;
}
