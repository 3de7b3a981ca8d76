import { aDate, check, storableText } from "../checks/options.ts";
import { type Duration, durationMs } from "../duration.ts";

/**
 * Thrown by a task that was told to come back later, as by a server's 429: the job's partition is held until then, and
 * the job is retried then.
 *
 * @throws {ArgumentError} when it is neither a duration nor a valid Date
 * @example if (response.status === 429) throw new RetryAfter("30 seconds", { reason: "429 from the server" });
 */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";
  /** When to come back. */
  readonly until: Date;
  /** Where a length of time was given: counted by the database's clock. */
  readonly forMs: number | undefined;
  readonly reason: string | undefined;

  constructor(after: Duration | Date, options: { reason?: string; cause?: unknown } = {}) {
    if (after instanceof Date) check("RetryAfter: the time to come back", after, aDate);
    const forMs = after instanceof Date ? undefined : durationMs(after);
    const until = after instanceof Date ? after : new Date(Date.now() + (forMs ?? 0));
    // a server's text may be cut within a letter: Graphile Worker could not record the failure, nor could the hold begin
    const reason = options.reason === undefined ? undefined : storableText(String(options.reason));
    super(reason ?? `retry after ${until.toISOString()}`, { cause: options.cause });
    this.until = until;
    this.forMs = forMs;
    this.reason = reason;
  }
}
