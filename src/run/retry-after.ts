import { aDate, check, type Rule, storableText } from "../checks/options.ts";
import { DURATION_EXPECTED, type Duration, durationMs, isDuration } from "../duration.ts";

const aWait: Rule = { expects: `a Date, or ${DURATION_EXPECTED}`, accepts: isDuration };

/**
 * A task throws this if it must try again later, for example because a server answered 429. The job's partition is held
 * until then, and the job is retried then. After the hold one job goes first, also if the time has passed already.
 *
 * It may be the `cause` of another error, one of the errors of an `AggregateError`, or the error of a part of a batch. Of several
 * the latest time counts.
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

/**
 * The RetryAfter that a task threw, or that its error wraps: as its cause, or among the errors of an AggregateError. Of several
 * the latest. A proxy may throw when it is asked what it is: it is none.
 */
export function retryAfterIn(thrown: unknown): RetryAfter | undefined {
  try {
    return latestIn(thrown, new Set());
  } catch {
    return undefined;
  }
}

function latestIn(thrown: unknown, seen: Set<Error>): RetryAfter | undefined {
  if (thrown instanceof RetryAfter) return thrown;
  if (!(thrown instanceof Error) || seen.has(thrown)) return undefined;
  seen.add(thrown);
  const wrapped: unknown[] =
    thrown instanceof AggregateError ? [thrown.cause, ...thrown.errors] : [thrown.cause];
  return wrapped
    .map((inner) => latestIn(inner, seen))
    .reduce((latest, one) => (one && !(latest && latest.until > one.until) ? one : latest), undefined);
}
