/** Classes of PostgreSQL's error codes that go by: of connections, conflicts, resources, locks, shutdowns. */
const OUTAGES = new Set(["08", "25", "40", "53", "55", "57", "58"]);
const LOCK_NOT_AVAILABLE = "55P03";
const DEADLOCK_DETECTED = "40P01";

/** Whether what failed may go through when it is tried again. Without a code of PostgreSQL's it was the connection. */
export function isOutage(error: unknown): boolean {
  const code = codeOf(error);
  return code === null || OUTAGES.has(classOf(code));
}

/** Whether a lock was not to be had in time. */
export function isLockTimeout(error: unknown): boolean {
  return codeOf(error) === LOCK_NOT_AVAILABLE;
}

/** Whether a lock was not to be had in time, or others waited for ours meanwhile. */
export function isBusy(error: unknown): boolean {
  return isLockTimeout(error) || codeOf(error) === DEADLOCK_DETECTED;
}

/**
 * What PostgreSQL said: the SQLSTATE. Null: the error did not come from the database. Node's own, of a connection, have a
 * code and a system call; EPIPE looks like a SQLSTATE.
 */
export function codeOf(error: unknown): string | null {
  const { code, syscall } = (error ?? {}) as { code?: unknown; syscall?: unknown };
  return typeof code === "string" && syscall === undefined && /^[0-9A-Z]{5}$/.test(code) ? code : null;
}

export function classOf(code: string): string {
  return code.slice(0, 2);
}
