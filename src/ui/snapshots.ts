import type { Found } from "./pages/visit.ts";

/** No page asks again less often. */
const OLDEST_MS = 10_000;
/** Addresses that somebody makes up must not fill the memory. */
const MOST = 100;

interface Snapshot {
  readonly at: number;
  readonly page: Promise<Found>;
}

/** Pages as they were a moment ago: for open tabs that ask again, each on its own. */
export interface Snapshots {
  /**
   * The page of this key if it is younger than so many seconds, else a new one. Who asks while it is being made gets the
   * same. The key says all that the page depends on, above all the sender's rights: else one would see what is another's.
   */
  get(key: string, seconds: number, make: () => Promise<Found>): Promise<Found>;
  /** Forgets all, because something has changed: nobody is to see what was before. */
  clear(): void;
}

export function makeSnapshots(): Snapshots {
  /** The oldest first. */
  const kept = new Map<string, Snapshot>();
  return {
    get(key, seconds, make) {
      const at = performance.now();
      const last = kept.get(key);
      if (last && at - last.at < Math.min(seconds * 1000, OLDEST_MS)) return last.page;
      const page = make();
      kept.delete(key);
      kept.set(key, { at, page });
      for (const [oldest, one] of kept)
        if (kept.size > MOST || at - one.at >= OLDEST_MS) kept.delete(oldest);
        else break;
      page.catch(() => {
        if (kept.get(key)?.page === page) kept.delete(key);
      });
      return page;
    },
    clear: () => kept.clear(),
  };
}
