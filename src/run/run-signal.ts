import type { JobHelpers } from "graphile-worker";
import { CancelledError, type RunTimeoutError } from "../errors.ts";
import { ours } from "../log.ts";

/** A run that goes on for longer than this after it was told to end is warned about. */
const GRACE_MS = 10_000;

/** The abort signal of one run. */
export interface RunSignal {
  /** Why an operator has cancelled the job. Undefined: nobody has. */
  readonly cancelled: CancelledError | undefined;
  /** Tells the run to end. The signal has the first reason. */
  abort(reason: RunTimeoutError | CancelledError): void;
  /** The run has ended. */
  end(): void;
}

/**
 * Gives a run an abort signal of its own, because Graphile Worker's belongs to the whole pool. It aborts with the pool's as
 * well.
 *
 * Any run may be cancelled, and most tasks never look at their signal. So it is made when somebody does.
 */
export function ownSignal(helpers: JobHelpers): RunSignal {
  const { abortSignal: pool } = helpers;
  let own: AbortController | undefined;
  let promise: Promise<void> | undefined;
  let reason: RunTimeoutError | CancelledError | undefined;
  let cancelled: CancelledError | undefined;
  let overdue: NodeJS.Timeout | undefined;
  let hasEnded = false;
  const follow = () => own?.abort(pool.reason);

  function signal(): AbortSignal {
    if (own) return own.signal;
    own = new AbortController();
    if (reason) own.abort(reason);
    else if (pool.aborted) follow();
    else if (!hasEnded) pool.addEventListener("abort", follow, { once: true });
    return own.signal;
  }

  Object.defineProperties(helpers, {
    abortSignal: { get: signal, enumerable: true, configurable: true },
    abortPromise: {
      get: () => (promise ??= rejection(signal())),
      enumerable: true,
      configurable: true,
    },
  });
  return {
    get cancelled() {
      return cancelled;
    },
    abort(why) {
      if (why instanceof CancelledError) cancelled ??= why;
      if (reason || hasEnded) return;
      reason = why;
      own?.abort(why);
      overdue = setTimeout(warn, GRACE_MS, helpers, why).unref();
    },
    end() {
      hasEnded = true;
      clearTimeout(overdue);
      if (own) pool.removeEventListener("abort", follow);
    },
  };
}

function rejection(signal: AbortSignal): Promise<void> {
  const promise = new Promise<void>((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  promise.catch(() => {}); // nobody need wait for it
  return promise;
}

function warn({ job, logger }: JobHelpers, reason: Error): void {
  ours(logger).warn(
    `${reason.message}. It was told to end ${GRACE_MS / 1000} s ago, and goes on. It keeps its slot until it ends. Let the ` +
      `task "${job.task_identifier}" heed helpers.abortSignal`,
  );
}
