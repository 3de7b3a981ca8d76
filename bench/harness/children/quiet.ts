// A worker that adds jobs of new tenants as soon as it runs others'. Its answer is how long each took from adding to start,
// in ms.
import { setTimeout as delay } from "node:timers/promises";
import { openAdder } from "../adder.ts";
import { openPolicy, TASK } from "../jobs.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

export interface Ask {
  readonly samples: number;
}

export interface Waits {
  readonly waits: number[];
}

const APART_MS = 200;

const orders = readOrders<WorkerOrders>();
const runs = Promise.withResolvers<void>();
const quiet = new Map<string, () => void>();
const task = (payload: unknown) => {
  runs.resolve();
  quiet.get((payload as { tenant: string }).tenant)?.();
};
const runner = await startWorker(orders, openPolicy, { [TASK]: task });
const utils = await openAdder(orders.side, {
  policy: openPolicy,
  connectionString: orders.url,
  maxPoolSize: 2,
});

async function waitOf(tenant: string): Promise<number> {
  const started = Promise.withResolvers<number>();
  quiet.set(tenant, () => started.resolve(performance.now()));
  const before = performance.now();
  await utils.addJob(TASK, { tenant });
  return (await started.promise) - before;
}

serve(
  async ({ samples }: Ask): Promise<Waits> => {
    await runs.promise;
    const waits: Promise<number>[] = [];
    for (let sample = 0; sample < samples; sample++) {
      waits.push(waitOf(`quiet-${sample}`));
      await delay(APART_MS);
    }
    return { waits: await Promise.all(waits) };
  },
  async () => {
    await runner.stop();
    await utils.release();
  },
);
