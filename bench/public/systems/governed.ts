import { definePolicy, makePolicyUtils } from "../../../src/index.ts";
import { startWorker } from "../../harness/children/worker.ts";
import { TASK } from "../../harness/jobs.ts";
import { logger } from "../../harness/logger.ts";
import { VERSIONS } from "../../harness/versions.ts";
import type { Job } from "../jobs.ts";
import type { Limits } from "../settings.ts";
import type { System } from "../system.ts";
import { PLAIN_DEPTH } from "./plain.ts";

export const governed: System = {
  name: "graphile-worker-dispatch-policy",
  version: `${VERSIONS.dispatchPolicy} on graphile-worker ${VERSIONS.graphileWorker}`,
  schemas: ["dispatch_policy_internal", "graphile_worker"],
  depth: `select (${PLAIN_DEPTH}) + (select coalesce(sum(staged), 0) from dispatch_policy.policies)`,
  async start({ url, workers: slots, tuned, limits }, task) {
    const policies = [policyOf(limits)];
    const utils = await makePolicyUtils({ connectionString: url, logger, policies });
    const orders = { side: "governed", url, tuned, slots } as const;
    const runner = await startWorker(orders, policies, { [TASK]: (payload) => task(payload as Job) });
    return {
      add: (jobs) => utils.addJobs(jobs.map((job) => ({ identifier: TASK, payload: job }))),
      async stop() {
        await runner.stop();
        await utils.release();
      },
    };
  },
};

/** Fair shares between tenants, and the limits that are asked for. */
function policyOf({ atOnce, perSecond }: Limits) {
  return definePolicy(TASK, {
    partitionBy: "tenant",
    gates: ({ throttle, concurrency }) => [
      ...(atOnce === undefined ? [] : [concurrency({ max: atOnce })]),
      ...(perSecond === undefined ? [] : [throttle({ rate: perSecond, per: "1 second", window: "sliding" })]),
    ],
  });
}
