// A worker that runs what is there: a no-op each. Its answer is the time from when it has come into its stride to the last
// end, how many jobs ended in it, and what they used up.
import type { Runner } from "graphile-worker";
import pg from "pg";
import { analyzeFilled, MANY } from "../analyze.ts";
import { openPolicy, TASK } from "../jobs.ts";
import { countUsage, type Usage } from "../usage.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

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
  await analyzeFilled(client, {
    ...{ who: orders.side, many: orders.tuned ? MANY.tuned : MANY.default },
    hasTime: () => done < jobs * LATEST,
  });
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

serve(runAll, async () => runner?.stop());
