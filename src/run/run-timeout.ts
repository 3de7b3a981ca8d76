import type { JobHelpers } from "graphile-worker";
import { RunTimeoutError } from "../errors.ts";
import { ours } from "../log.ts";
import { RetryAfter } from "./retry-after.ts";
import type { Outcome } from "./wrap-task.ts";

/** A run that goes on for longer than this after it was told to end is warned about. */
const GRACE_MS = 10_000;

/** Runs a task, and says how the run ended. */
export type Watch = (run: () => Promise<Outcome>) => Promise<Outcome>;

/**
 * Tells a run to end when it has lasted for its time. For that it gives the run an abort signal of its own, because Graphile
 * Worker's belongs to the whole pool. It aborts with the pool's as well.
 *
 * Nobody can end a promise. If the attempt failed at once, its slot would go to another job although the work goes on. More
 * would run at once than the limit allows. So the attempt fails when its task settles.
 */
export function watchRun(helpers: JobHelpers, timeoutMs: number, told: () => void): Watch {
  const { abortSignal: pool } = helpers;
  const own = new AbortController();
  const follow = () => own.abort(pool.reason);
  const aborted = rejection(own.signal);
  Object.assign(helpers, { abortSignal: own.signal, abortPromise: aborted });
  if (pool.aborted) follow();
  else pool.addEventListener("abort", follow, { once: true });
  return async (run) => {
    let reason: RunTimeoutError | undefined;
    let overdue: NodeJS.Timeout | undefined;
    const timer = setTimeout(() => {
      reason = new RunTimeoutError(helpers.job, timeoutMs);
      own.abort(reason);
      overdue = setTimeout(warn, GRACE_MS, helpers, reason).unref();
      told();
    }, timeoutMs);
    try {
      return await settle(helpers.job.payload, await run(), () => reason);
    } finally {
      clearTimeout(timer);
      clearTimeout(overdue);
      pool.removeEventListener("abort", follow);
    }
  };
}

/** The parts of a batch end one by one. Graphile Worker retries those that failed. */
async function settle(
  payload: unknown,
  outcome: Outcome,
  reason: () => RunTimeoutError | undefined,
): Promise<Outcome> {
  const results = "error" in outcome ? undefined : outcome.result;
  const isBatch = Array.isArray(payload) && Array.isArray(results) && payload.length === results.length;
  if (!isBatch) return afterTime(outcome, reason());
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
  if (error === reason || error instanceof RetryAfter) return outcome;
  reason.cause ??= error;
  return { error: reason };
}

function warn({ job, logger }: JobHelpers, reason: RunTimeoutError): void {
  ours(logger).warn(
    `${reason.message}, was told to end ${GRACE_MS / 1000} s ago, and goes on. It keeps its slot until it ends. Let the ` +
      `task "${job.task_identifier}" heed helpers.abortSignal`,
  );
}

function rejection(signal: AbortSignal): Promise<void> {
  const promise = new Promise<void>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  promise.catch(() => {}); // nobody need wait for it
  return promise;
}
