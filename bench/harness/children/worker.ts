import { type Runner, run, type TaskList, WorkerPreset } from "graphile-worker";
import { type AnyPolicy, type DispatchPolicyOptions, dispatchPolicyPreset } from "../../../src/index.ts";
import { logger } from "../logger.ts";
import type { SideName } from "../sides.ts";

/** Those of Graphile Worker's own perfTest. */
export const SLOTS = 24;
/** Its settings for pace. */
export const TUNED = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };

export interface WorkerOrders {
  readonly side: SideName;
  readonly url: string;
  readonly tuned: boolean;
  readonly slots?: number;
}

/** A worker as the README sets it up, governed by a policy or without this package. */
export function startWorker(
  { side, url, tuned, slots = SLOTS }: WorkerOrders,
  policies: AnyPolicy | readonly AnyPolicy[],
  taskList: TaskList,
  options: Omit<DispatchPolicyOptions, "policies"> = {},
): Promise<Runner> {
  const governed = side === "governed";
  return run({
    preset: {
      extends: [
        WorkerPreset,
        ...(governed ? [dispatchPolicyPreset({ ...options, policies: [policies].flat() })] : []),
      ],
      worker: {
        connectionString: url,
        concurrentJobs: slots,
        maxPoolSize: slots + 1,
        logger,
        ...(tuned ? TUNED : {}),
      },
    },
    taskList,
    crontab: governed ? "* * * * * dispatch_policy_tick ?jobKey=dispatch_policy_tick" : "",
    noHandleSignals: true,
  });
}
