import { aDate, check, type Rule, storableText } from "../checks/options.ts";
import { DURATION_EXPECTED, type Duration, durationMs, isDuration } from "../duration.ts";

const aWait: Rule = { expects: `a Date, or ${DURATION_EXPECTED}`, accepts: isDuration };

/**
 * A task throws this if it must try again later, for example because a server answered 429. The job's partition is held
 * until then, and the job is retried then. After the hold one job goes first, also if the time has passed already.
 *
 * @throws {ArgumentError} if the time is neither a duration nor a valid Date
 * @example if (response.status === 429) throw new RetryAfter("30 seconds", { reason: "429 from the server" });
 */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";
  /** When to try again. */
  readonly until: Date;
  /** The wait in milliseconds by the database's clock, if a duration was given. */
  readonly forMs: number | undefined;
  readonly reason: string | undefined;

  constructor(after: Duration | Date, options: { reason?: string | undefined; cause?: unknown } = {}) {
    if (after instanceof Date) check("RetryAfter: the time to come back", after, aDate);
    else check("RetryAfter: the wait", after, aWait);
    const forMs = after instanceof Date ? undefined : durationMs(after);
    const until = after instanceof Date ? after : new Date(Date.now() + (forMs ?? 0));
    // a server's text may be cut within a letter, which PostgreSQL refuses: the failure could not be recorded
    const reason = options.reason === undefined ? undefined : storableText(String(options.reason));
    super(reason ?? `retry after ${until.toISOString()}`, { cause: options.cause });
    this.until = until;
    this.forMs = forMs;
    this.reason = reason;
  }
}

/** Whether a task threw one. A proxy may throw when it is asked what it is: it is none. */
export function isRetryAfter(thrown: unknown): thrown is RetryAfter {
  try {
    return thrown instanceof RetryAfter;
  } catch {
    return false;
  }
}
