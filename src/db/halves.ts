import { classOf, codeOf, isOutage } from "./outage.ts";

/**
 * One bad entry would fail all others each time. So if the database refuses all entries because of their contents, each
 * half is tried, down to the single entry that it refuses. `refuse` gets that one.
 *
 * An error that does not depend on the entries (a lock timeout, a lost connection) is thrown unchanged. Entries that were
 * done by then stay done.
 */
export async function inHalves<T>(
  all: readonly T[],
  run: (part: readonly T[]) => Promise<unknown>,
  refuse: (one: T, error: Error) => unknown,
): Promise<void> {
  try {
    await run(all);
  } catch (error) {
    if (!isOfEntries(error)) throw error;
    await divide(all, error, run, refuse);
  }
}

/** The same, for entries that have failed together with this error. */
export async function divide<T>(
  failed: readonly T[],
  error: Error,
  run: (part: readonly T[]) => Promise<unknown>,
  refuse: (one: T, error: Error) => unknown,
): Promise<void> {
  if (failed.length <= 1) {
    for (const one of failed) await refuse(one, error);
    return;
  }
  const middle = Math.ceil(failed.length / 2);
  for (const half of [failed.slice(0, middle), failed.slice(middle)]) await inHalves(half, run, refuse);
}

/**
 * Beside outages, these classes of SQLSTATE do not depend on the entries: missing rights, and missing names, for example
 * during an upgrade.
 */
const RIGHTS_AND_NAMES = new Set(["26", "28", "3D", "3F", "42"]);

/** Whether one of the entries may have caused an error. Without a SQLSTATE it did not come from the database. */
export function isOfEntries(error: unknown): error is Error {
  const code = codeOf(error);
  if (!(error instanceof Error) || code === null || isOutage(error)) return false;
  return !RIGHTS_AND_NAMES.has(classOf(code));
}
