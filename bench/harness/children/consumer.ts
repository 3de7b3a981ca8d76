// A worker that counts the jobs it starts, and notes how long those took from adding to start that say when they were
// added. Its answer is what it noted since the last one. Jobs that were added before it was up count from then on.
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
  readonly most: number;
  /** How many jobs these are of. */
  readonly timed: number;
  /** The moment of its first start of a job; not a number until then. */
  readonly upAt: number;
  /** Of this process, in MiB. */
  readonly memory: number;
}

export interface Ask {
  /** The next answer has what this one has, too. */
  readonly keep?: boolean;
}

const orders = readOrders<WorkerOrders & { othersOnly?: boolean }>();
let upAt = Number.NaN;
let started = 0;
let latencies: number[] = [];

const noteLatency = (payload: unknown) => {
  const { addedAt } = payload as { addedAt?: number };
  if (addedAt !== undefined) latencies.push(moment() - Math.max(addedAt, upAt));
};
const tasks: TaskList = {
  [OTHER_TASK]: noteLatency,
};
if (!orders.othersOnly)
  tasks[TASK] = (payload) => {
    started++;
    noteLatency(payload);
  };
// a day by default: half an hour would show nothing but growth where partitions come and go
const options = { partitionInactiveAfter: "2 minutes" } as const;
const runner = await startWorker(orders, openPolicy, tasks, options);
runner.events.once("job:start", () => {
  upAt = moment();
});

serve(
  async ({ keep = false }: Ask): Promise<Noted> => {
    const noted = {
      started,
      p50: quantile(latencies, 0.5),
      p99: quantile(latencies, 0.99),
      most: quantile(latencies, 1),
      timed: latencies.length,
      upAt,
      memory: process.memoryUsage.rss() / 2 ** 20,
    };
    if (keep) return noted;
    started = 0;
    latencies = [];
    return noted;
  },
  () => runner.stop(),
);
