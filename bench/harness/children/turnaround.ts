// A worker with free slots and one job at a time, each started by the end of the one before it, or by being added. Its
// answer is how long each start took.
import { setTimeout as delay } from "node:timers/promises";
import { openAdder } from "../adder.ts";
import { BY_GATES, type Gates, TASK } from "../jobs.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

/** Between a start and what brings the next: long enough for everything else to come to rest. */
const REST_MS = 10;

export interface Ask {
  readonly samples: number;
  /** What brings the next start. */
  readonly by: "end" | "add";
}

const orders = readOrders<WorkerOrders & { gates: Gates }>();
const policy = BY_GATES[orders.gates];
let restsMs = 0;
let onStart = (): void => {};
const task = async () => {
  onStart();
  if (restsMs > 0) await delay(restsMs);
  lastReturn = performance.now();
};
let lastReturn = 0;

const runner = await startWorker(orders, policy, { [TASK]: task });
const utils = await openAdder(orders.side, {
  policy,
  connectionString: orders.url,
  maxPoolSize: 1,
});

/** How many tenants a shared cap is for. */
const TENANTS = 10;

/** One job more than samples, all of one partition unless the cap is shared: the first has none before it. */
async function freedToStart(samples: number): Promise<number[]> {
  const took: number[] = [];
  restsMs = REST_MS;
  const enough = Promise.withResolvers<void>();
  let starts = 0;
  onStart = () => {
    if (starts++ > 0) took.push(performance.now() - lastReturn);
    if (took.length === samples) enough.resolve();
  };
  const tenants = orders.gates === "shared cap of one" ? TENANTS : 1;
  await utils.addJobs(
    Array.from({ length: samples + 1 }, (_, n) => ({
      identifier: TASK,
      payload: { tenant: `tenant-${n % tenants}` },
    })),
  );
  await enough.promise;
  return took;
}

async function addedToStart(samples: number): Promise<number[]> {
  const took: number[] = [];
  restsMs = 0;
  for (let sample = 0; sample < samples; sample++) {
    const started = Promise.withResolvers<number>();
    onStart = () => started.resolve(performance.now());
    const before = performance.now();
    await utils.addJob(TASK, { tenant: "one" });
    took.push((await started.promise) - before);
    await delay(REST_MS);
  }
  return took;
}

serve(
  async ({ samples, by }: Ask) => ({
    took: await (by === "end" ? freedToStart(samples) : addedToStart(samples)),
  }),
  async () => {
    await runner.stop();
    await utils.release();
  },
);
