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

/** The part of the jobs after which the time is taken, however few the table held when it was counted. */
const LATEST = 0.6;

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
  const firstDone = Promise.withResolvers<void>();
  let done = 0;
  const noop = () => {
    if (++done === first) firstDone.resolve();
    if (done === jobs) allDone.resolve(performance.now());
  };
  const startClock = async () => ({ usedSince: await countUsage(client), done, at: performance.now() });
  runner = await startWorker(orders, openPolicy, { [TASK]: noop });
  await firstDone.promise;
  let since = await startClock();
  await analyze(client, () => done < jobs * LATEST);
  if (jobs - done >= jobs / 10) since = await startClock();
  else
    console.error(
      `# ${orders.side}: the jobs ran faster than the tables were analyzed, which is timed with them`,
    );
  const end = await allDone.promise;
  const timed = jobs - since.done;
  const perJob = await since.usedSince(timed);
  await client.end();
  return { ms: end - since.at, jobs: timed, perJob };
}

/**
 * As autovacuum does, at a moment when Graphile Worker's table holds jobs, and is counted so: see docs/benchmarks.md.
 * By the time a table is counted its jobs may have run. On a slow machine that may be so each time, and a run of few
 * jobs would be over: it says so, and is timed with the plan it has.
 */
async function analyze(client: pg.Client, hasTime: () => boolean): Promise<void> {
  await client.query("analyze");
  const counted =
    "select reltuples >= $1 as many from pg_class where oid = 'graphile_worker._private_jobs'::regclass";
  const many = orders.tuned ? MANY.tuned : MANY.default;
  while (hasTime()) {
    const { rows } = await client.query<{ many: boolean }>(counted, [many]);
    if (rows[0]?.many) return;
    await delay(2);
    await client.query("analyze graphile_worker._private_jobs");
  }
  console.error(`# ${orders.side}: analyzed when Graphile Worker's table held fewer than ${many} jobs`);
}

serve(runAll, async () => runner?.stop());
