import type { FinishedJob } from "../db/engine.ts";

/** The most fresh jobs in one flush. */
export const BATCH = 3000;
/** A flush may come too early for a job: Graphile Worker is still recording its end. The job is tried again after this. */
const FIRST_SLEEP_MS = 5;
const LONGEST_SLEEP_MS = 1000;
/** After so many flushes that left it, about a second, a settled job comes without what it cost. */
const FLUSHES_TO_SETTLE = 7;

/** A finished job that is not released yet. */
export interface Unreleased {
  job: FinishedJob;
  readonly policy: string;
  tries: number;
  /** How many flushes answered, and left it. */
  left: number;
  /** Tells the one who pushed it that its group was flushed. */
  readonly flushed: () => void;
}

/** The finished jobs that wait for a flush: fresh ones, and those that an earlier flush left. */
export function makeUnreleased() {
  const fresh: Unreleased[] = [];
  let freshPolicies = new Set<string>();
  let group = Promise.withResolvers<void>();
  const left: Unreleased[] = [];
  let leftUntil = 0;

  return {
    /** Resolves when the job's group was flushed. */
    add(job: FinishedJob, policy: string): Promise<void> {
      freshPolicies.add(policy);
      // the jobs that a flush takes together share a promise
      if (fresh.length % BATCH === 0) group = Promise.withResolvers();
      fresh.push({ job, policy, tries: 0, left: 0, flushed: group.resolve });
      return group.promise;
    },
    /** What goes with the next flush: all fresh jobs, and the left ones if their time has come or nothing else goes. */
    consume(): Unreleased[] {
      const due = fresh.length === 0 || performance.now() >= leftUntil ? left.splice(0) : [];
      const next = [...fresh.splice(0, BATCH), ...due];
      freshPolicies = policiesOf(fresh);
      return next;
    },
    /** Keeps what a flush left. The newest of them decides when they go: older ones must not delay it. */
    putBack(jobs: readonly Unreleased[]): void {
      if (jobs.length === 0) return;
      for (const job of jobs) job.tries++;
      const soonest = performance.now() + sleepAfter(Math.min(...jobs.map(({ tries }) => tries)));
      leftUntil = left.length === 0 ? soonest : Math.min(leftUntil, soonest);
      left.push(...jobs);
    },
    /** How many fresh jobs wait. */
    fresh: (): number => fresh.length,
    /** The policies of the fresh jobs. */
    freshPolicies: (): ReadonlySet<string> => freshPolicies,
    /** When the left jobs go, by `performance.now()`. */
    leftUntil: (): number => leftUntil,
    /** How many jobs wait. */
    size: (): number => fresh.length + left.length,
  };
}

/**
 * The danger: another transaction has a throttle locked, as an open one does in which somebody took tokens. Nobody can settle
 * there, so the job keeps its slots, and those of wider scopes stop other partitions. Graphile Worker even retries a failed
 * job past its gates, after 3 seconds. The cure: after a second the job is released as it is, and keeps its estimate.
 *
 * Returns how many jobs these are.
 */
export function stopSettling(left: readonly Unreleased[]): number {
  let stopped = 0;
  for (const one of left) {
    if (++one.left < FLUSHES_TO_SETTLE || one.job.settled === undefined) continue;
    one.job = { ...one.job, settled: undefined };
    stopped++;
  }
  return stopped;
}

export function policiesOf(jobs: readonly Unreleased[]): Set<string> {
  return new Set(jobs.map(({ policy }) => policy));
}

/** In milliseconds: twice as long after each try. */
export function sleepAfter(tries: number): number {
  return Math.min(FIRST_SLEEP_MS * 2 ** (tries - 1), LONGEST_SLEEP_MS);
}
