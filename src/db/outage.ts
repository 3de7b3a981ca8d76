import { DispatchPolicyError } from "../errors.ts";
import { LOCK_NOT_AVAILABLE, QUERY_CANCELED } from "./sqlstates.ts";

/** Classes of PostgreSQL's error codes for temporary failures: connections, conflicts, resources, locks, shutdowns. */
const OUTAGES = new Set(["08", "25", "40", "53", "55", "57", "58"]);
const DEADLOCK_DETECTED = "40P01";

/** Whether a further try may succeed. An error without a SQLSTATE comes from the connection. */
export function isOutage(error: unknown): boolean {
  const code = codeOf(error);
  return code === null || OUTAGES.has(classOf(code));
}

/**
 * Whether a session waited too long for a lock.
 *
 * If a lock timeout fires while one wait ends and the next one begins, PostgreSQL calls it a user's cancel. 4 of 17,234
 * were such when two sessions waited for one row. An operator's cancel reads the same, and the next try answers it as well.
 */
export function isLockTimeout(error: unknown): boolean {
  const code = codeOf(error);
  const { message } = (error ?? {}) as { message?: unknown };
  return (
    code === LOCK_NOT_AVAILABLE ||
    (code === QUERY_CANCELED && message === "canceling statement due to user request")
  );
}

/** Whether a session waited too long for a lock, or PostgreSQL ended a deadlock. */
export function isBusy(error: unknown): boolean {
  return isLockTimeout(error) || codeOf(error) === DEADLOCK_DETECTED;
}

/**
 * An error's SQLSTATE. Null: the error did not come from the database. Node's errors have a code and a system call, and
 * one of their codes, EPIPE, looks like a SQLSTATE. An error of this package that explains the database's has that one's.
 */
export function codeOf(error: unknown): string | null {
  if (error instanceof DispatchPolicyError) return error.cause === undefined ? null : codeOf(error.cause);
  const { code, syscall } = (error ?? {}) as { code?: unknown; syscall?: unknown };
  return typeof code === "string" && syscall === undefined && /^[0-9A-Z]{5}$/.test(code) ? code : null;
}

export function classOf(code: string): string {
  return code.slice(0, 2);
}
