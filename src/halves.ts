/**
 * Does something with all of these at once; where the database refuses that because of what it was given, with each half,
 * down to the one that it refuses alone. Without, one bad entry fails those beside it each time they are tried.
 *
 * An error that says nothing of the entries (a lock that was not to be had, a lost connection) is thrown as it is, and
 * what was done by then is done.
 */
export async function inHalves<T>(
  all: readonly T[],
  run: (part: readonly T[]) => Promise<void>,
  setAside: (one: T, error: Error) => void,
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
  run: (part: readonly T[]) => Promise<void>,
  setAside: (one: T, error: Error) => void,
): Promise<void> {
  if (failed.length <= 1) {
    for (const one of failed) setAside(one, error);
    return;
  }
  const middle = Math.ceil(failed.length / 2);
  for (const half of [failed.slice(0, middle), failed.slice(middle)]) await inHalves(half, run, setAside);
}

/**
 * Classes of SQLSTATE that say nothing of the entries: connections, transactions, rights, names that are not there (an
 * upgrade is under way), resources, locks, an operator who intervenes, the system.
 */
const OF_THE_WHOLE = new Set(["08", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58"]);

/** Whether an error may be one entry's. What has no SQLSTATE did not come from the database. */
export function isOfEntries(error: unknown): error is Error {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) && !OF_THE_WHOLE.has(code.slice(0, 2));
}
