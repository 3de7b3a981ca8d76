import type { JobHelpers } from "graphile-worker";
import { CancelledError, type RunTimeoutError } from "../errors.ts";
import { ours } from "../log.ts";

/** A run that goes on for longer than this after it was told to end is warned about. */
const GRACE_MS = 10_000;

/**
 * The abort signal of one run. Graphile Worker's belongs to the whole pool, and this one aborts with it.
 *
 * Any run may be cancelled, so each has a signal, although most tasks never look. It stands in `helpers` as a plain value,
 * because a getter would cost a run much more than the signal: see decision 020.
 */
export class RunSignal {
  /** Who has cancelled the job, and why. Undefined: nobody has. */
  cancelled: CancelledError | undefined;
  /** The worker pool, which is shutting down, has told the run to end. */
  stopped = false;
  readonly #helpers: JobHelpers;
  readonly #runsOfPool: Set<RunSignal>;
  readonly #controller = new AbortController();
  readonly #rejection = Promise.withResolvers<void>();
  #reason: RunTimeoutError | CancelledError | undefined;
  #overdue: NodeJS.Timeout | undefined;
  #hasEnded = false;

  /** Puts the run's signal, and the promise that rejects with it, in the place of the pool's. */
  constructor(helpers: JobHelpers) {
    const { abortSignal: pool } = helpers;
    this.#helpers = helpers;
    this.#runsOfPool = runsOf(pool);
    helpers.abortSignal = this.#controller.signal;
    helpers.abortPromise = this.#rejection.promise;
    if (pool.aborted) this.follow(pool);
    else this.#runsOfPool.add(this);
  }

  /** Tells the run to end. The signal has the first reason. */
  abort(reason: RunTimeoutError | CancelledError): void {
    if (reason instanceof CancelledError) this.cancelled ??= reason;
    if (this.#reason || this.#hasEnded) return;
    this.#reason = reason;
    this.#tell(reason);
    this.#overdue = setTimeout(warn, GRACE_MS, this.#helpers, reason).unref();
  }

  /** The pool's signal has aborted. */
  follow(pool: AbortSignal): void {
    this.stopped = true;
    this.#tell(pool.reason);
  }

  /** The run has ended. */
  end(): void {
    this.#hasEnded = true;
    this.#runsOfPool.delete(this);
    clearTimeout(this.#overdue);
  }

  #tell(reason: unknown): void {
    this.#rejection.promise.catch(() => {}); // nobody need wait for it
    this.#rejection.reject(reason);
    this.#controller.abort(reason);
  }
}

/** The runs that a pool's signal still has to tell, by that signal. */
const runsByPool = new WeakMap<AbortSignal, Set<RunSignal>>();

/** One listener tells all runs of a pool. Each run's own would have to be added and removed. */
function runsOf(pool: AbortSignal): Set<RunSignal> {
  const known = runsByPool.get(pool);
  if (known) return known;
  const runs = new Set<RunSignal>();
  runsByPool.set(pool, runs);
  const tellAll = () => {
    for (const run of runs) run.follow(pool);
  };
  pool.addEventListener("abort", tellAll, { once: true });
  return runs;
}

function warn({ job, logger }: JobHelpers, reason: Error): void {
  ours(logger).warn(
    `${reason.message}. It was told to end ${GRACE_MS / 1000} s ago, and goes on. It keeps its slot until it ends. Let the ` +
      `task "${job.task_identifier}" heed helpers.abortSignal`,
  );
}
