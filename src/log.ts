import type { Logger as ScopedLogger } from "@graphile/logger";

/** What a line may be about. */
interface LogScope {
  label?: string;
  workerId?: string;
  taskIdentifier?: string;
  jobId?: string;
}

/** That of Graphile Worker is one: it takes the class from the same package, and the same scope. */
export type Logger = ScopedLogger<LogScope>;

/** The logger, with the scope by which our lines are told from those of Graphile Worker and of tasks. */
export function ours(logger: Logger): Logger {
  return logger.scope({ label: "dispatch-policy" });
}

/** The same, of the logger of a job that the lines do not concern: with its id they would seem to be about it. */
export function oursWithoutJob(logger: Logger): Logger {
  const noJob: object = { workerId: undefined, taskIdentifier: undefined, jobId: undefined };
  return ours(logger).scope(noJob);
}
