import type { JobHelpers } from "graphile-worker";
import { RunTimeoutError } from "../errors.ts";
import { batchParts } from "./batch-parts.ts";
import { retryAfterIn } from "./retry-after.ts";
import type { RunSignal } from "./run-signal.ts";
import type { Outcome } from "./wrap-task.ts";

/** Runs a task, and says how the run ended. */
export type Watch = (run: () => Promise<Outcome>) => Promise<Outcome>;

/**
 * Tells a run to end when it has lasted for its time.
 *
 * Nobody can end a promise. If the attempt failed at once, its slot would go to another job although the work goes on. More
 * would run at once than the limit allows. So the attempt fails when its task settles.
 */
export function watchRun(
  { job }: Pick<JobHelpers, "job">,
  signal: Pick<RunSignal, "abort">,
  timeoutMs: number,
  told: () => void,
): Watch {
  return async (run) => {
    let reason: RunTimeoutError | undefined;
    const timer = setTimeout(() => {
      reason = new RunTimeoutError(job, timeoutMs);
      signal.abort(reason);
      told();
    }, timeoutMs);
    try {
      return await settle(job.payload, await run(), () => reason);
    } finally {
      clearTimeout(timer);
    }
  };
}

/** The parts of a batch end one by one. Graphile Worker retries those that failed. */
async function settle(
  payload: unknown,
  outcome: Outcome,
  reason: () => RunTimeoutError | undefined,
): Promise<Outcome> {
  const results = batchParts(payload, outcome);
  if (results === null) return afterTime(outcome, reason());
  const parts = results.map(async (part: unknown) => {
    const end = await Promise.resolve(part).then(
      () => afterTime({ result: undefined }, reason()),
      (error: unknown) => afterTime({ error }, reason()),
    );
    if ("error" in end) throw end.error;
    return part;
  });
  await Promise.allSettled(parts);
  return { result: parts };
}

/**
 * How a run ended. After its time it has failed, whatever it did then. But `RetryAfter` stays, because with it the task
 * itself says when it is tried again.
 */
function afterTime(outcome: Outcome, reason: RunTimeoutError | undefined): Outcome {
  if (reason === undefined) return outcome;
  if (!("error" in outcome)) return { error: reason };
  const { error } = outcome;
  if (error === reason || retryAfterIn(error)) return outcome;
  reason.cause ??= error;
  return { error: reason };
}
