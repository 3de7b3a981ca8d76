import type { Job } from "graphile-worker";
import { timeOf } from "../timestamp.ts";

/** Two clocks are compared, so jobs that were fetched this long after a silence are in doubt as well. */
const DOUBT_MS = 50;

/**
 * Which of its fetched jobs a worker pool may have lost. If its heartbeats are further apart than `staleAfterMs`, others
 * may have taken it for dead and unlocked its jobs, also those in a local queue. Causes are a suspended machine, a blocked
 * event loop, or an outage of the database.
 */
export function makeSilence({
  staleAfterMs,
  clockBehindMs,
}: {
  staleAfterMs: number;
  clockBehindMs: number;
}) {
  /** By `performance.now()`: until then no other process takes this pool for dead. */
  let trustedUntil = Number.POSITIVE_INFINITY;
  /** By the clock that fetches jobs: others may have those that were fetched until then. */
  let doubtsUntil = Number.NEGATIVE_INFINITY;
  let silences = 0;
  const lasts = (): boolean => performance.now() >= trustedUntil;
  const doubt = (): void => {
    silences++;
    doubtsUntil = Number.POSITIVE_INFINITY;
  };

  return {
    /** A heartbeat that was sent at this time has arrived. Returns whether a silence has ended with it. */
    arrived(sentAt: number): boolean {
      const ended = lasts();
      if (ended) doubt();
      trustedUntil = sentAt + staleAfterMs;
      return ended;
    },
    /** From now on each job that was fetched before is in doubt. */
    doubt,
    /** The server is an old primary: the pool is silent until another one answers. */
    begins(): void {
      trustedUntil = performance.now();
    },
    /** Whether the pool is silent: no job is certain before the next heartbeat. */
    lasts,
    /** Whether others may have a job. After a silence, that is so for each job whose time cannot be read. */
    doubts(job: Job): boolean {
      const lockedAt = timeOf(job.locked_at) ?? Number.POSITIVE_INFINITY;
      if (lasts() || lockedAt <= doubtsUntil) return true;
      return lockedAt === Number.POSITIVE_INFINITY && doubtsUntil > Number.NEGATIVE_INFINITY;
    },
    /** Asks the database whether the job is still this pool's. @throws {Error} if it is not */
    async check(job: Job, ask: () => Promise<{ keeps: boolean; now: Date }>): Promise<void> {
      const silence = silences;
      const { keeps, now } = await ask();
      if (silence === silences && doubtsUntil === Number.POSITIVE_INFINITY)
        doubtsUntil = now.getTime() - clockBehindMs + DOUBT_MS;
      if (keeps) return;
      throw new Error(
        `Job ${job.id} was reassigned, because this worker was silent for longer than workerStaleAfter ` +
          `(${staleAfterMs} ms): it will not run here`,
      );
    },
  };
}

export type Silence = ReturnType<typeof makeSilence>;
