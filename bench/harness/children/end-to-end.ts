// A worker that runs what is there: a no-op each. Its answer is the time from when it has come into its stride to the last
// end, how many jobs ended in it, and what they used up.
import { setTimeout as delay } from "node:timers/promises";
import type { Runner } from "graphile-worker";
import pg from "pg";
import { openPolicy, TASK } from "../jobs.ts";
import { countUsage, type Usage } from "../usage.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

/** A worker with a local queue fetches many at once, and its table holds as many. */
const MANY = { tuned: 100, default: 20 };

const orders = readOrders<WorkerOrders>();
let runner: Runner | undefined;

export interface Run {
  readonly ms: number;
  readonly jobs: number;
  readonly perJob: Usage;
}

async function runAll({ jobs, first }: { jobs: number; first: number }): Promise<Run> {
  const client = new pg.Client({ connectionString: orders.url });
  await client.connect();
  const allDone = Promise.withResolvers<number>();
  const inStride = Promise.withResolvers<void>();
  let done = 0;
  const noop = () => {
    if (++done === first) analyze(client, () => done < jobs).then(inStride.resolve, inStride.reject);
    if (done === jobs) allDone.resolve(performance.now());
  };
  runner = await startWorker(orders, openPolicy, { [TASK]: noop });
  await inStride.promise;
  const usedSince = await countUsage(client);
  const start = performance.now();
  const left = jobs - done;
  if (left < jobs / 10) throw new Error(`only ${left} of ${jobs} jobs were left to be timed`);
  const end = await allDone.promise;
  const perJob = await usedSince(left);
  await client.end();
  return { ms: end - start, jobs: left, perJob };
}

/**
 * As autovacuum does, at a moment when Graphile Worker's table holds jobs, and is counted so: see docs/benchmarks.md.
 * By the time a table is counted its jobs may have run.
 */
async function analyze(client: pg.Client, isRunning: () => boolean): Promise<void> {
  await client.query("analyze");
  const counted =
    "select reltuples >= $1 as many from pg_class where oid = 'graphile_worker._private_jobs'::regclass";
  while (isRunning()) {
    const { rows } = await client.query<{ many: boolean }>(counted, [
      orders.tuned ? MANY.tuned : MANY.default,
    ]);
    if (rows[0]?.many) return;
    await delay(2);
    await client.query("analyze graphile_worker._private_jobs");
  }
}

serve(runAll, async () => runner?.stop());
