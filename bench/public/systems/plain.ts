import { makeWorkerUtils } from "graphile-worker";
import { startWorker } from "../../harness/children/worker.ts";
import { openPolicy, TASK } from "../../harness/jobs.ts";
import { logger } from "../../harness/logger.ts";
import { VERSIONS } from "../../harness/versions.ts";
import type { Job } from "../jobs.ts";
import type { System } from "../system.ts";

/** Not locked, and due. A failed job is due later, or never. */
export const PLAIN_DEPTH = `select count(*) from graphile_worker.jobs
  where locked_at is null and run_at <= now() and attempts < max_attempts`;

export const plain: System = {
  name: "graphile-worker",
  version: VERSIONS.graphileWorker,
  schemas: ["graphile_worker"],
  depth: PLAIN_DEPTH,
  async start({ url, workers: slots, tuned, limits }, task) {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    await utils.migrate();
    const orders = { side: "plain", url, tuned, slots } as const;
    const runner = await startWorker(orders, openPolicy, { [TASK]: (payload) => task(payload as Job) });
    return {
      add: (jobs) =>
        utils.addJobs(
          jobs.map((job) => ({ identifier: TASK, payload: job, ...queueOf(job, limits.atOnce) })),
        ),
      async stop() {
        await runner.stop();
        await utils.release();
      },
    };
  },
};

/** A named queue runs one job at a time, so a tenant has as many queues as jobs of it may run at once. */
function queueOf({ tenant, nth }: Job, atOnce: number | undefined): { queueName?: string } {
  return atOnce === undefined ? {} : { queueName: `${tenant}-${nth % atOnce}` };
}
