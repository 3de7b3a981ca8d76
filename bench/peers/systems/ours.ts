import { type DispatchPolicyOptions, definePolicy, makePolicyUtils } from "../../../src/index.ts";
import { SLOTS, startWorker } from "../../harness/children/worker.ts";
import { inCalls, TASK } from "../../harness/jobs.ts";
import { logger } from "../../harness/logger.ts";
import type { Job, Limit, System } from "../system.ts";

type Pace = { readonly window: "sliding" } | { readonly smooth: true };

export const ours = systemOf("ours", { window: "sliding" });

/** Differs in its throttle only. */
export const oursSmooth: System = {
  ...systemOf("ours smooth", { smooth: true }),
  cannot: ({ perSecond }) => (perSecond === undefined ? "is ours" : undefined),
};

function systemOf(name: string, pace: Pace): System {
  return {
    name,
    settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, throttle: pace },
    cannot: () => undefined,
    async open({ url, limit }) {
      const policies = [policyOf(limit, pace)];
      const utils = await makePolicyUtils({ connectionString: url, logger, policies });
      return {
        add: (jobs) =>
          inCalls(jobs, (some) => utils.addJobs(some.map((job) => ({ identifier: TASK, payload: job })))),
        stop: async () => utils.release(),
      };
    },
    async start({ url, limit, silentMs }, task) {
      const orders = { side: "governed", url, tuned: false } as const;
      const tasks = { [TASK]: (payload: unknown) => task(payload as Job) };
      const runner = await startWorker(orders, policyOf(limit, pace), tasks, recovery(silentMs));
      return () => runner.stop();
    },
  };
}

function recovery(silentMs: number | undefined): Omit<DispatchPolicyOptions, "policies"> {
  if (silentMs === undefined) return {};
  return {
    workerHeartbeatInterval: `${silentMs / 3} ms`,
    workerStaleAfter: `${silentMs} ms`,
    sweepInterval: "1 second",
  };
}

function policyOf({ atOnce, perSecond }: Limit, pace: Pace) {
  return definePolicy(TASK, {
    partitionBy: "key",
    gates: ({ throttle, concurrency }) => [
      ...(atOnce === undefined ? [] : [concurrency({ max: atOnce })]),
      ...(perSecond === undefined ? [] : [throttle({ rate: perSecond, per: "1 second", ...pace })]),
    ],
  });
}
