import type { Job } from "graphile-worker";
import type { AnyPolicy } from "../policy/policy.ts";
import type { Cancellation } from "./cancellations.ts";
import type { RunSignal } from "./run-signal.ts";

/** What is known of a running job with a policy, for its release. */
export interface RunningJob {
  readonly policy: AnyPolicy;
  /** The owner of the slot that it occupies. */
  readonly admission: string;
  /** False: it occupies the slot of the job that it replaced under its key, and only gives that slot back. */
  readonly ownsSlot: boolean;
  /** Null: not known, because the attempt before was cut short or the job was let in at its start. */
  readonly lagMs: number | null;
  /** By `performance.now()`. */
  readonly startedAt: number;
  readonly signal: Pick<RunSignal, "cancelled">;
  /** An operator has cancelled the job. The run is told to end, once. */
  cancel(why: Cancellation): void;
}

/** How far a job has come in this process. Times are by `performance.now()`. */
interface Progress {
  /** When a local queue fetched it ahead of its start. */
  readonly fetchedAt?: number;
  readonly running?: RunningJob;
}

/** What a process knows of the jobs that its workers have fetched, from the fetch to the end. */
export function makeRunningJobs() {
  const jobs = new WeakMap<Job, Progress>();
  return {
    /** A local queue fetched the job. It may wait there before it starts. */
    fetched(job: Job): void {
      jobs.set(job, { fetchedAt: performance.now() });
    },
    /** How long the job has waited in a local queue, in milliseconds; 0 without one. */
    waitedMs(job: Job): number {
      const fetchedAt = jobs.get(job)?.fetchedAt;
      return fetchedAt === undefined ? 0 : performance.now() - fetchedAt;
    },
    started(job: Job, running: RunningJob): void {
      jobs.set(job, { ...jobs.get(job), running });
    },
    /** The job ended. Undefined: it had no policy or occupied no slot, or its end was seen before. */
    ended(job: Job): RunningJob | undefined {
      const running = jobs.get(job)?.running;
      if (running) jobs.delete(job);
      return running;
    },
  };
}
