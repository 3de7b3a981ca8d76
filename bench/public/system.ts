import type { Job } from "./jobs.ts";
import type { Settings } from "./settings.ts";

/** What an adapter measures: a job queue, with a worker in this process. */
export interface System {
  readonly name: string;
  /** What ran, with its version. */
  readonly version: string;
  /** The schemas whose tables hold the jobs. */
  readonly schemas: readonly string[];
  /** Counts the jobs that could run and that no worker has: SQL that gives one number. */
  readonly depth: string;
  /** Sets up the database, and starts the worker. */
  start(settings: Settings, task: (job: Job) => Promise<void>): Promise<Running>;
}

export interface Running {
  /** Adds jobs by one bulk call. */
  add(jobs: readonly Job[]): Promise<unknown>;
  /** Resolves when the jobs that run have ended. */
  stop(): Promise<unknown>;
}
