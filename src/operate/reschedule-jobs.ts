import type { DbJob } from "graphile-worker";
import { optional, wholeNumber } from "../checks/options.ts";
import type { OperateContext } from "./call.ts";
import { releaseMarked } from "./sweep.ts";

/** The changes that `rescheduleJobs` makes. Options that are left out, or undefined, change nothing. */
export interface RescheduleOptions {
  /** When it is due: a Date, or a text that PostgreSQL reads as a time. */
  runAt?: string | Date | undefined;
  /** A whole number, −32768 to 32767; lower runs first. */
  priority?: number | undefined;
  /** A whole number, 0 to 32767. No effect on a staged job that never ran. */
  attempts?: number | undefined;
  /** A whole number, 1 to 32767. */
  maxAttempts?: number | undefined;
}

/** Documented at {@link Operate.rescheduleJobs}. */
export async function rescheduleJobs(
  context: OperateContext,
  ids: readonly string[],
  options: RescheduleOptions,
): Promise<DbJob[]> {
  const { runAt, priority, attempts, maxAttempts } = options;
  optional("rescheduleJobs: priority", priority, wholeNumber(-32768, 32767));
  optional("rescheduleJobs: attempts", attempts, wholeNumber(0, 32767));
  optional("rescheduleJobs: maxAttempts", maxAttempts, wholeNumber(1, 32767));
  const changes = { run_at: runAt, priority, attempts, max_attempts: maxAttempts };
  const jobs = await context.withPgClient((client) =>
    context.engine.call<DbJob>(client, "reschedule_jobs", { job_ids: ids, ...changes }),
  );
  // the slots of jobs that were admitted, in a second transaction, because it locks limiters
  await releaseMarked(context);
  return jobs;
}
