import { classOf, codeOf, isOutage } from "./outage.ts";

/**
 * Does something with all of these at once; where the database refuses that because of what it was given, with each half,
 * down to the one that it refuses alone. Without, one bad entry fails those beside it each time they are tried.
 *
 * An error that says nothing of the entries (a lock that was not to be had, a lost connection) is thrown as it is, and
 * what was done by then is done.
 */
export async function inHalves<T>(
  all: readonly T[],
  run: (part: readonly T[]) => Promise<unknown>,
  setAside: (one: T, error: Error) => unknown,
): Promise<void> {
  try {
    await run(all);
  } catch (error) {
    if (!isOfEntries(error)) throw error;
    await divide(all, error, run, setAside);
  }
}

/** The same, for those that failed together with this error. */
export async function divide<T>(
  failed: readonly T[],
  error: Error,
  run: (part: readonly T[]) => Promise<unknown>,
  setAside: (one: T, error: Error) => unknown,
): Promise<void> {
  if (failed.length <= 1) {
    for (const one of failed) await setAside(one, error);
    return;
  }
  const middle = Math.ceil(failed.length / 2);
  for (const half of [failed.slice(0, middle), failed.slice(middle)]) await inHalves(half, run, setAside);
}

/**
 * Classes of SQLSTATE that say nothing of the entries either, beside those of outages: rights, and names that are not
 * there, as while an upgrade is under way.
 */
const RIGHTS_AND_NAMES = new Set(["26", "28", "3D", "3F", "42"]);

/** Whether an error may be one entry's. What has no SQLSTATE did not come from the database. */
export function isOfEntries(error: unknown): error is Error {
  const code = codeOf(error);
  if (!(error instanceof Error) || code === null || isOutage(error)) return false;
  return !RIGHTS_AND_NAMES.has(classOf(code));
}
