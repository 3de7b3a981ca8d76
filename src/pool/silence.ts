import type { Job } from "graphile-worker";
import { timeOf } from "../timestamp.ts";

/** Jobs fetched this long after a silence are asked for as well: two clocks are compared. */
const DOUBT_MS = 50;

/**
 * What a worker pool may believe of the jobs it has fetched. When its heartbeats are further apart than `staleAfterMs` (a
 * suspended machine, a blocked event loop, a database that was away) others may have taken it for dead and given its jobs
 * away, also those that waited in a local queue.
 */
export function makeSilence({
  staleAfterMs,
  clockBehindMs,
}: {
  staleAfterMs: number;
  clockBehindMs: number;
}) {
  /** By performance.now(): no other takes this pool for dead before. */
  let trustedUntil = Number.POSITIVE_INFINITY;
  /** By the clock that fetches jobs: what was fetched until then may have been given away. */
  let doubtsUntil = Number.NEGATIVE_INFINITY;
  let silences = 0;
  const lasts = (): boolean => performance.now() >= trustedUntil;

  return {
    /** A heartbeat that was sent then has arrived. */
    heard(sentAt: number): void {
      if (lasts()) {
        silences++;
        doubtsUntil = Number.POSITIVE_INFINITY;
      }
      trustedUntil = sentAt + staleAfterMs;
    },
    /** Whether a heartbeat is needed before anything is believed. */
    lasts,
    /** A job whose time cannot be read may always be one of those. */
    doubts(job: Job): boolean {
      const lockedAt = timeOf(job.locked_at) ?? Number.POSITIVE_INFINITY;
      if (lasts() || lockedAt <= doubtsUntil) return true;
      return lockedAt === Number.POSITIVE_INFINITY && doubtsUntil > Number.NEGATIVE_INFINITY;
    },
    /** Asks the database, between two heartbeats in time. @throws when the job belongs to others now */
    async check(job: Job, ask: () => Promise<{ keeps: boolean; now: Date }>): Promise<void> {
      const silence = silences;
      const { keeps, now } = await ask();
      if (silence === silences && doubtsUntil === Number.POSITIVE_INFINITY)
        doubtsUntil = now.getTime() - clockBehindMs + DOUBT_MS;
      if (keeps) return;
      throw new Error(
        `This worker was silent for longer than workerStaleAfter (${staleAfterMs} ms), and job ${job.id} was given to ` +
          "others: it does not run here",
      );
    },
  };
}
