// A worker whose jobs run for as long as they say. Its answer is what ended since the last one, by tenant.
import { setTimeout as delay } from "node:timers/promises";
import type { Worked } from "../../studies/fairness.ts";
import { type FairBy, mixedPolicy, TASK } from "../jobs.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

const orders = readOrders<WorkerOrders & { by: FairBy }>();
let worked: Worked = {};

const runner = await startWorker(orders, mixedPolicy(orders.by), {
  [TASK]: async (payload) => {
    const { tenant, ms } = payload as { tenant: string; ms: number };
    const start = performance.now();
    await delay(ms);
    worked[tenant] ??= { jobs: 0, seconds: 0 };
    worked[tenant].jobs++;
    worked[tenant].seconds += (performance.now() - start) / 1000;
  },
});

serve(
  async (): Promise<Worked> => {
    const answer = worked;
    worked = {};
    return answer;
  },
  () => runner.stop(),
);
