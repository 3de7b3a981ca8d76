import { makeWorkerUtils } from "graphile-worker";
import { SLOTS, startWorker } from "../../harness/children/worker.ts";
import { inCalls, openPolicy, TASK } from "../../harness/jobs.ts";
import { logger } from "../../harness/logger.ts";
import type { Job, Limit, System } from "../system.ts";

export const plain: System = {
  name: "plain",
  settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, queueName: "key and id % limit" },
  cannot: ({ perSecond }) => (perSecond === undefined ? undefined : "has no rate limit"),
  async open({ url, limit }) {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    return {
      add: (jobs) =>
        inCalls(jobs, (some) =>
          utils.addJobs(some.map((job) => ({ identifier: TASK, payload: job, ...queueOf(job, limit) }))),
        ),
      stop: async () => utils.release(),
    };
  },
  async start({ url }, task) {
    const orders = { side: "plain", url, tuned: false } as const;
    const runner = await startWorker(orders, openPolicy, { [TASK]: (payload) => task(payload as Job) });
    return () => runner.stop();
  },
};

/** A named queue runs one job at a time, so as many queues as may run at once. */
function queueOf({ key, id }: Job, { atOnce }: Limit): { queueName?: string } {
  return atOnce === undefined ? {} : { queueName: `${key}-${id % atOnce}` };
}
