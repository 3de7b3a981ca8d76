// A worker whose jobs run for as long as they say. Its answer is when each of them started since the last one, by number.
import { setTimeout as delay } from "node:timers/promises";
import { TASK, type WaitingSize, type WaitsFor, waitingPolicy } from "../jobs.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

const orders = readOrders<WorkerOrders & { waitsFor: WaitsFor; size: WaitingSize }>();
let started: [n: number, at: number][] = [];

const runner = await startWorker(orders, waitingPolicy(orders.waitsFor, orders.size), {
  [TASK]: async (payload) => {
    const { n, ms } = payload as { n: number; ms: number };
    started.push([n, Date.now()]);
    if (ms > 0) await delay(ms);
  },
});

serve(
  async () => {
    const answer = started;
    started = [];
    return answer;
  },
  () => runner.stop(),
);
