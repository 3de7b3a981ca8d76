import type { Job } from "graphile-worker";
import { sleep } from "../admit/sleeper.ts";
import { classOf, codeOf, isOutage } from "../db/outage.ts";
import { errorText } from "../error-text.ts";
import { PayloadError } from "../errors.ts";
import { type Logger, ours } from "../log.ts";

/** A question about a start is asked again after this, and then less often. */
const FIRST_SLEEP_MS = 50;
const LONGEST_SLEEP_MS = 1000;

/** The job is not to blame: this run is no attempt of it. Graphile Worker counts one, and the release takes it off again. */
export class UncountedRunError extends Error {
  override readonly name = "UncountedRunError";
}

/** The same, and the slot is that of the attempt before, which still runs. */
export class StillRunsError extends UncountedRunError {
  constructor({ id }: Job) {
    super(
      `Job ${id} did not start, and keeps its attempt: its worker shuts down, and another one still runs it`,
    );
  }
}

/** Classes of what PostgreSQL refuses because of the data it was given, and this package's own refusals. */
const OF_DATA = new Set(["22", "23", "54", "DP"]);
/** See _check_isolation. It reads as an outage, but stays as it is. */
const WRONG_ISOLATION = "25000";

/**
 * Asks the database about a job that starts, again and again while it does not answer: a cut connection or a time-out is no
 * failure of the job. There is no other end: while the database is away, Graphile Worker could not record a failure either,
 * and the job would stay locked. The question must be one that may be asked twice, because only its answer may have been lost.
 *
 * @param signal ends the questions, as when the worker pool shuts down
 * @throws {UncountedRunError} if there is no answer to be had
 */
export async function untilAnswered<T>(
  question: () => Promise<T>,
  { job, logger }: { readonly job: Job; readonly logger: Logger },
  signal: AbortSignal,
): Promise<T> {
  for (let sleepMs = FIRST_SLEEP_MS; ; sleepMs = Math.min(sleepMs * 2, LONGEST_SLEEP_MS)) {
    try {
      return await question();
    } catch (error) {
      throwUnlessAway(error, job);
      if (sleepMs === FIRST_SLEEP_MS)
        ours(logger).warn(`Job ${job.id} cannot start yet: ${errorText(error)}`, { error });
      await sleep(sleepMs, signal);
      if (signal.aborted) throw notStarted(job, error);
    }
  }
}

/**
 * Throws why a question about a start failed, unless the next try may succeed. What is refused about this very job is its
 * own failure. Nothing else is: the run does not count, and the job is tried again later.
 */
export function throwUnlessAway(error: unknown, job: Job): void {
  const code = codeOf(error);
  if (error instanceof PayloadError || (code !== null && OF_DATA.has(classOf(code)))) throw error;
  if (!isOutage(error) || code === WRONG_ISOLATION) throw notStarted(job, error);
}

function notStarted(job: Job, cause: unknown): UncountedRunError {
  return new UncountedRunError(
    `Job ${job.id} did not start, and keeps its attempt: the database could not be asked (${errorText(cause)})`,
    { cause },
  );
}
