// A worker that counts the jobs it starts, and notes how long those took from adding to start that say when they were
// added. Its answer is what it noted since the last one.
import type { TaskList } from "graphile-worker";
import { OTHER_TASK, openPolicy, TASK } from "../jobs.ts";
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

let started = 0;
let latencies: number[] = [];

const noteLatency = (payload: unknown) => {
  const { addedAt } = payload as { addedAt?: number };
  if (addedAt !== undefined) latencies.push(moment() - addedAt);
};
const tasks: TaskList = {
  [TASK]: (payload) => {
    started++;
    noteLatency(payload);
  },
  [OTHER_TASK]: noteLatency,
};
// a day by default: half an hour would show nothing but growth where partitions come and go
const options = { partitionInactiveAfter: "2 minutes" } as const;
const runner = await startWorker(readOrders<WorkerOrders>(), openPolicy, tasks, options);

serve(
  async (): Promise<Noted> => {
    const noted = {
      started,
      p50: quantile(latencies, 0.5),
      p99: quantile(latencies, 0.99),
      memory: process.memoryUsage.rss() / 2 ** 20,
    };
    started = 0;
    latencies = [];
    return noted;
  },
  () => runner.stop(),
);
