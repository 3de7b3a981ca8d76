import type { LookedPage, LostSlot } from "../db/engine.ts";

/** A slot that was lost. */
export interface Lost extends LostSlot {
  /** A look has seen the job run in a worker pool without this package. */
  readonly elsewhere: boolean;
}

/** The process that ran a job releases it within moments, if it has this package. For so long the slot is left to it. */
const GRACE_MS = 1000;
/** The grace for a job that no look has seen running, while jobs keep ending in processes without this package. */
const SHORT_GRACE_MS = 150;

/** What looks have seen of slots that nobody may free, page by page. */
export function makeSuspects() {
  const since = new Map<string, { slot: LostSlot; at: number }>();
  /** Whether jobs that were seen running ran in worker pools without this package. */
  const isForeign = new Map<string, boolean>();

  function graceOf({ job }: LostSlot, often: boolean): number {
    if (!often) return GRACE_MS;
    const foreign = isForeign.get(job);
    if (foreign === undefined) return SHORT_GRACE_MS;
    return foreign ? 0 : GRACE_MS;
  }

  /** Forgets what this page would have shown, and does not. */
  function forget(page: LookedPage, lost: ReadonlyMap<string, LostSlot>): void {
    const isOnPage = (job: string) =>
      BigInt(job) > BigInt(page.after) && (page.next_after === "0" || BigInt(job) <= BigInt(page.next_after));
    for (const [key, { slot }] of since) if (isOnPage(slot.job) && !lost.has(key)) since.delete(key);
    const seen = new Set([...page.lost.map(({ job }) => job), ...page.ours, ...page.foreign_ids]);
    for (const job of isForeign.keys()) if (isOnPage(job) && !seen.has(job)) isForeign.delete(job);
  }

  return {
    /**
     * Takes a page in, and returns the slots that were lost for longer than their grace.
     *
     * @param often whether jobs keep ending elsewhere. Then a job that was seen running keeps the long grace if its pool
     *   is known, and has none if it is not.
     */
    lost(page: LookedPage, now: number, often: boolean): Lost[] {
      const lost = new Map(page.lost.map((slot) => [`${slot.job} ${slot.admission} ${slot.attempt}`, slot]));
      forget(page, lost);
      for (const job of page.ours) isForeign.set(job, false);
      for (const job of page.foreign_ids) isForeign.set(job, true);
      const over: Lost[] = [];
      for (const [key, slot] of lost) {
        const { at } = since.get(key) ?? { at: now };
        if (now - at >= graceOf(slot, often))
          over.push({ ...slot, elsewhere: isForeign.get(slot.job) === true });
        since.set(key, { slot, at });
      }
      return over;
    },
  };
}
