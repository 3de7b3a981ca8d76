import type { CleanupOptions, DbJob, WorkerUtils } from "graphile-worker";
import { optional, wholeNumber } from "../checks/options.ts";
import type { Arguments } from "../db/engine.ts";
import { TICK_TASK } from "../policy/job.ts";
import { type AnyPolicy, tasksOf } from "../policy/policy.ts";
import type { OperateContext } from "./call.ts";
import type { Operate, RescheduleOptions } from "./operate.ts";
import { releaseMarked } from "./sweep.ts";

/** Graphile Worker's own functions for jobs. Documented at {@link Operate}. */
export function jobFunctions(
  { withPgClient, engine }: OperateContext,
  cleanup: WorkerUtils["cleanup"],
  policies: readonly AnyPolicy[],
): Pick<Operate, "completeJobs" | "permanentlyFailJobs" | "rescheduleJobs" | "cleanup"> {
  /** These verbs mark the slots of the jobs they end. A second transaction gives the slots back at once. */
  const jobsOf = async (verb: string, args: Arguments): Promise<DbJob[]> => {
    const jobs = await withPgClient((client) => engine.call<DbJob>(client, verb, args));
    await releaseMarked({ withPgClient, engine });
    return jobs;
  };
  return {
    completeJobs: (ids: string[]) => jobsOf("complete_jobs", { job_ids: ids }),
    permanentlyFailJobs: (ids: string[], reason?: string) =>
      jobsOf("permanently_fail_jobs", { job_ids: ids, error_message: reason }),
    async rescheduleJobs(ids: string[], options: RescheduleOptions) {
      const { runAt, priority, attempts, maxAttempts } = options;
      optional("rescheduleJobs: priority", priority, wholeNumber(-32768, 32767));
      optional("rescheduleJobs: attempts", attempts, wholeNumber(0, 32767));
      optional("rescheduleJobs: maxAttempts", maxAttempts, wholeNumber(1, 32767));
      const changes = { run_at: runAt, priority, attempts, max_attempts: maxAttempts };
      return jobsOf("reschedule_jobs", { job_ids: ids, ...changes });
    },
    cleanup: (options: CleanupOptions = { tasks: ["GC_JOB_QUEUES"] }) =>
      cleanup({
        ...options,
        taskIdentifiersToKeep: [
          ...(options.taskIdentifiersToKeep ?? []),
          ...policies.flatMap((policy) => [...tasksOf(policy)]),
          TICK_TASK,
        ],
      }),
  };
}
