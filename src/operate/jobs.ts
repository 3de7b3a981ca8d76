import type { CleanupOptions, DbJob, WorkerUtils } from "graphile-worker";
import type { Arguments } from "../db/engine.ts";
import { TICK_TASK } from "../policy/job.ts";
import type { OperateContext } from "./call.ts";
import type { Operate } from "./operate.ts";
import { rescheduleJobs } from "./reschedule-jobs.ts";
import { releaseMarked } from "./sweep.ts";

/** Graphile Worker's own functions for jobs. Documented at {@link Operate}. */
export function jobFunctions(
  { withPgClient, engine }: OperateContext,
  cleanup: WorkerUtils["cleanup"],
): Pick<Operate, "completeJobs" | "permanentlyFailJobs" | "rescheduleJobs" | "cleanup"> {
  /** These verbs mark the slots of the jobs they end. A second transaction frees the slots at once. */
  const jobsOf = async (verb: string, args: Arguments): Promise<DbJob[]> => {
    const jobs = await withPgClient((client) => engine.call<DbJob>(client, verb, args));
    await releaseMarked({ withPgClient, engine });
    return jobs;
  };
  return {
    completeJobs: (ids: string[]) => jobsOf("complete_jobs", { job_ids: ids }),
    permanentlyFailJobs: (ids: string[], reason?: string) =>
      jobsOf("permanently_fail_jobs", { job_ids: ids, error_message: reason }),
    rescheduleJobs: (ids, options) => rescheduleJobs({ withPgClient, engine }, ids, options),
    cleanup: async (options: CleanupOptions = { tasks: ["GC_JOB_QUEUES"] }) =>
      cleanup({
        ...options,
        taskIdentifiersToKeep: [
          ...(options.taskIdentifiersToKeep ?? []),
          ...(await withPgClient(engine.policyTasks)),
          TICK_TASK,
        ],
      }),
  };
}
