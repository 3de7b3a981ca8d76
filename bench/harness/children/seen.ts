// A worker whose jobs run for as long as they say. Its answer is what started and ended since the last one.
import { setTimeout as delay } from "node:timers/promises";
import type { Seen } from "../../studies/ahead.ts";
import { cappedPolicy, TASK, weightedPolicy } from "../jobs.ts";
import { moment } from "../moment.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

const NOTHING = (): Seen => ({ starts: [], ends: [] });

const orders = readOrders<WorkerOrders & { capped?: boolean }>();
let seen = NOTHING();

const runner = await startWorker(orders, orders.capped ? cappedPolicy : weightedPolicy, {
  [TASK]: async (payload) => {
    const { tenant, ms } = payload as { tenant: string; ms: number };
    seen.starts.push({ tenant, at: moment() });
    if (ms > 0) await delay(ms);
    seen.ends.push(moment());
  },
});

serve(
  async (): Promise<Seen> => {
    const answer = seen;
    seen = NOTHING();
    return answer;
  },
  () => runner.stop(),
);
