// A worker that notes how long each job took from its adding to its start. Its answer is what it noted since the last one.
import { openPolicy, TASK } from "../jobs.ts";
import { moment } from "../moment.ts";
import { quantile } from "../statistics.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

export interface Noted {
  readonly started: number;
  /** Milliseconds from adding to start. */
  readonly p50: number;
  readonly p99: number;
  /** Of this process, in MiB. */
  readonly memory: number;
}

let latencies: number[] = [];

const runner = await startWorker(readOrders<WorkerOrders>(), openPolicy, {
  [TASK]: (payload) => void latencies.push(moment() - (payload as { addedAt: number }).addedAt),
});

serve(
  async (): Promise<Noted> => {
    const noted = latencies;
    latencies = [];
    return {
      started: noted.length,
      p50: quantile(noted, 0.5),
      p99: quantile(noted, 0.99),
      memory: process.memoryUsage.rss() / 2 ** 20,
    };
  },
  () => runner.stop(),
);
