import type { Job } from "graphile-worker";
import type { EndedJob } from "../db/engine.ts";
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

/** So many jobs that have ended are known. */
const MOST_ENDED = 5000;

/** The jobs that a worker pool has, of any task. */
export interface JobsInHand {
  /** They run: they are certainly the pool's. */
  readonly running: Map<string, Job>;
  /** They wait in a local queue, or a worker asks whether they are the pool's. */
  readonly fetched: Set<string>;
  /** They have ended lately. `at`: when, by `performance.now()`. */
  readonly ended: Map<string, EndedJob & { readonly at: number; readonly well: boolean }>;
  /** When a job came last, by `performance.now()`: the database has answered then. */
  cameAt: number;
}

export type RunningJobs = ReturnType<typeof makeRunningJobs>;

/** What a process knows of the jobs that its workers have fetched, from the fetch to the end. */
export function makeRunningJobs() {
  const fetches = new WeakMap<Job, Fetch>();
  const running = new WeakMap<Job, RunningJob>();
  const disowned = new WeakSet<Job>();
  const hands = new Map<string, JobsInHand>();
  const inHand = (poolId: string): JobsInHand => {
    const hand = hands.get(poolId) ?? { running: new Map(), fetched: new Set(), ended: new Map(), cameAt: 0 };
    hands.set(poolId, hand);
    return hand;
  };
  function left(poolId: string, job: Job, well: boolean): void {
    const { fetched, ended } = inHand(poolId);
    const id = String(job.id);
    fetched.delete(id);
    ended.delete(id); // so that it is the last one
    ended.set(id, { job: id, revision: job.revision, at: performance.now(), well });
    if (ended.size > MOST_ENDED) ended.delete(ended.keys().next().value as string);
  }
  return {
    inHand,
    /** A worker has a job, and runs it. */
    runs(poolId: string, job: Job): void {
      const hand = inHand(poolId);
      const id = String(job.id);
      hand.fetched.delete(id);
      hand.ended.delete(id);
      hand.running.set(id, job);
      hand.cameAt = performance.now();
    },
    /** Before it runs, the worker asks whether it is the pool's. */
    asks(poolId: string, job: Job): void {
      const { fetched, running } = inHand(poolId);
      running.delete(String(job.id));
      fetched.add(String(job.id));
    },
    /** It has it no more. */
    done(poolId: string, job: Job, well: boolean): void {
      const { running } = inHand(poolId);
      const id = String(job.id);
      if (running.has(id) && running.get(id) !== job) return; // a later attempt of it runs here
      running.delete(id);
      left(poolId, job, well);
    },
    /** A local queue gives jobs back. */
    returned(poolId: string, jobs: readonly Job[]): void {
      for (const job of jobs) left(poolId, job, false);
    },
    /** A promotion has given the row of a job that runs to others. */
    disown: (job: Job): void => void disowned.add(job),
    isDisowned: (job: Job): boolean => disowned.has(job),
    /** The pool has ended. */
    forget: (poolId: string): void => void hands.delete(poolId),
    /** What is known of the run of a job with a slot. */
    runOf: (job: Job): RunningJob | undefined => running.get(job),
    /** A local queue fetched the jobs. They may wait there before they start. */
    fetched(poolId: string, jobs: readonly Job[]): void {
      const fetch = { at: performance.now() };
      for (const job of jobs) {
        fetches.set(job, fetch);
        inHand(poolId).fetched.add(String(job.id));
      }
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
