import type { Job, Logger } from "graphile-worker";
import { sleep } from "../admit/sleeper.ts";
import { isOfEntries } from "../db/halves.ts";
import { isOutage } from "../db/outage.ts";
import { errorText } from "../error-text.ts";
import { PayloadError } from "../errors.ts";
import { ours } from "../log.ts";

/** A question about a start is asked again for so long, at first after this, and then less often. */
const ASKS_FOR_MS = 30_000;
const FIRST_SLEEP_MS = 50;
const LONGEST_SLEEP_MS = 1000;

/** The job is not to blame: this run is no attempt of it. Graphile Worker counts one, and the release takes it off again. */
export class UncountedRunError extends Error {
  override readonly name = "UncountedRunError";
}

/**
 * Asks the database about a job that starts, again and again while it does not answer: a cut connection or a time-out is no
 * failure of the job. The question must be one that may be asked twice, because only its answer may have been lost.
 *
 * @param signal ends the questions, as when the worker pool shuts down
 * @throws {UncountedRunError} if there is no answer to be had
 */
export async function untilAnswered<T>(
  question: () => Promise<T>,
  { job, logger }: { readonly job: Job; readonly logger: Logger },
  signal: AbortSignal,
): Promise<T> {
  const asksUntil = performance.now() + ASKS_FOR_MS;
  for (let sleepMs = FIRST_SLEEP_MS; ; sleepMs = Math.min(sleepMs * 2, LONGEST_SLEEP_MS)) {
    try {
      return await question();
    } catch (error) {
      // what the database or the policy refuses about this very job is its own failure
      if (error instanceof PayloadError || isOfEntries(error)) throw error;
      if (sleepMs === FIRST_SLEEP_MS)
        ours(logger).warn(`Job ${job.id} cannot start yet: ${errorText(error)}`, { error });
      if (isOutage(error) && performance.now() + sleepMs < asksUntil) await sleep(sleepMs, signal);
      else throw notStarted(job, error);
      if (signal.aborted) throw notStarted(job, error);
    }
  }
}

function notStarted(job: Job, cause: unknown): UncountedRunError {
  return new UncountedRunError(
    `Job ${job.id} did not start, and keeps its attempt: the database could not be asked (${errorText(cause)})`,
    { cause },
  );
}
