import type { Job } from "graphile-worker";
import type { AnyPolicy } from "../policy/policy.ts";
import type { BatchError } from "./batch-parts.ts";
import type { RunSignal } from "./run-signal.ts";
import type { Settlement } from "./settlement.ts";

/** What is known of a running job with a policy, for its release. */
export interface RunningJob {
  readonly policy: AnyPolicy;
  /** The owner of the slot that it occupies. */
  readonly admission: string;
  /** The id that it had in staging. Null: not known. */
  readonly stagedId: string | null;
  /** False: it occupies the slot of the job that it replaced under its key, and only frees that slot. */
  readonly ownsSlot: boolean;
  /** Null: not known, because the attempt before was cut short or the job was admitted at its start. */
  readonly lagMs: number | null;
  /** By `performance.now()`. */
  readonly startedAt: number;
  /** What the run has said of its cost. */
  readonly settlement: Pick<Settlement, "settled">;
  readonly signal: Pick<RunSignal, "cancelled" | "stopped" | "abort">;
  /** Of a batch that has ended: the errors of its parts. The host has one error without them. */
  failed?: BatchError | undefined;
}

/** A local queue fetched jobs together, ahead of their starts. */
interface Fetch {
  /** By `performance.now()`. */
  readonly at: number;
}

/** What a process knows of the jobs that its workers have fetched, from the fetch to the end. */
export function makeRunningJobs() {
  const fetches = new WeakMap<Job, Fetch>();
  const running = new WeakMap<Job, RunningJob>();
  return {
    /** A local queue fetched the jobs. They may wait there before they start. */
    fetched(jobs: readonly Job[]): void {
      const fetch = { at: performance.now() };
      for (const job of jobs) fetches.set(job, fetch);
    },
    /** How long the job has waited in a local queue, in milliseconds; 0 without one. */
    waitedMs(job: Job): number {
      const fetch = fetches.get(job);
      return fetch === undefined ? 0 : performance.now() - fetch.at;
    },
    started(job: Job, one: RunningJob): void {
      running.set(job, one);
    },
    /** The job ended. Undefined: it had no policy or occupied no slot, or its end was seen before. */
    ended(job: Job): RunningJob | undefined {
      const one = running.get(job);
      if (one) running.delete(job);
      return one;
    },
  };
}
