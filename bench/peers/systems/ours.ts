import { definePolicy, makePolicyUtils } from "../../../src/index.ts";
import { startWorker } from "../../children/worker.ts";
import { inCalls, TASK } from "../../jobs.ts";
import { logger } from "../../logger.ts";
import { type Job, type Limit, SLOTS, type System } from "../system.ts";

/** The policy is declared alike where jobs are added and where they run. */
function policyOf({ atOnce, perSecond }: Limit) {
  return definePolicy(TASK, {
    partitionBy: "key",
    gates: ({ throttle, concurrency }) => [
      ...(atOnce === undefined ? [] : [concurrency({ max: atOnce })]),
      ...(perSecond === undefined
        ? []
        : [throttle({ rate: perSecond, per: "1 second", window: "sliding" as const })]),
    ],
  });
}

export const ours: System = {
  name: "ours",
  settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, window: "sliding" },
  cannot: () => undefined,
  async open({ url, limit }) {
    const utils = await makePolicyUtils({ connectionString: url, logger, policies: [policyOf(limit)] });
    return {
      add: (jobs) =>
        inCalls(jobs, (some) => utils.addJobs(some.map((job) => ({ identifier: TASK, payload: job })))),
      stop: async () => utils.release(),
    };
  },
  async start({ url, limit }, task) {
    const orders = { side: "governed", url, tuned: false } as const;
    const runner = await startWorker(orders, policyOf(limit), { [TASK]: (payload) => task(payload as Job) });
    return () => runner.stop();
  },
};
