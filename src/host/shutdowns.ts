import type { CompiledSharedOptions, Logger, Worker, WorkerPool } from "graphile-worker";
import { LONGEST_TIMER_MS } from "../duration.ts";
import type { OwnEvents } from "./own-events.ts";

/** How long Graphile Worker may take to end a pool after the last of its workers, beside its batch delays. */
const ENDS_WITHIN_MS = 5000;

/**
 * Ends shutdowns of worker pools that Graphile Worker would never end.
 *
 * The danger: with `completeJobBatchDelay` or `failJobBatchDelay`, Graphile Worker 0.18.0 counts the batches that are under
 * way. After one that it could not record, each further batch is counted down twice. So its shutdown may wait without end
 * for the count to be 0. The pool heartbeats all the time. So nobody takes it for dead, and its jobs stay locked.
 *
 * The cure: after such a failure, a shutdown goes on without Graphile Worker some seconds after the last worker has ended.
 * The pool then falls silent, and others unlock its jobs. The last batch may begin a whole delay after the last worker has
 * ended, so the delays count as well.
 */
export function makeShutdowns({ resolvedPreset }: CompiledSharedOptions, own: OwnEvents, logger: Logger) {
  const { completeJobBatchDelay = 0, failJobBatchDelay = 0 } = resolvedPreset.worker;
  const endsWithinMs = ENDS_WITHIN_MS + Math.max(completeJobBatchDelay, failJobBatchDelay, 0);
  const ends = new WeakMap<WorkerPool, PoolEnd>();

  function endOf(workerPool: WorkerPool): PoolEnd {
    const end = ends.get(workerPool) ?? makePoolEnd(workerPool.id, endsWithinMs, logger);
    ends.set(workerPool, end);
    return end;
  }

  own.on("worker:create", ({ worker }) => endOf(worker.workerPool).begins(worker));
  own.on("worker:stop", ({ worker }) => endOf(worker.workerPool).ends(worker));
  own.on("pool:fatalError", ({ workerPool, action }) => endOf(workerPool).fails(action));

  return {
    /** Waits for Graphile Worker's part of a shutdown. Undefined: it does not end. */
    async graphileWorker<T>(workerPool: WorkerPool, part: PromiseLike<T> | T): Promise<T | undefined> {
      const end = endOf(workerPool);
      const { promise: stuck, resolve } = Promise.withResolvers<undefined>();
      const leave = end.whenStuck(() => resolve(undefined));
      try {
        return await Promise.race([part, stuck]);
      } finally {
        leave();
      }
    },
  };
}

type PoolEnd = ReturnType<typeof makePoolEnd>;

/** What is known of the end of a worker pool. */
function makePoolEnd(poolId: string, endsWithinMs: number, logger: Logger) {
  const workers = new Set<Worker>();
  /** Shutdowns that wait: a graceful and a forceful one may do so at once. */
  const waiting = new Set<() => void>();
  /** What Graphile Worker could not record. */
  let unrecorded: string | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isTold = false;

  /** Begins to count the time as soon as the pool may be stuck, each time anew. */
  function look(): void {
    clearTimeout(timer);
    if (workers.size === 0 && unrecorded !== undefined && waiting.size > 0)
      timer = setTimeout(goOn, Math.min(endsWithinMs, LONGEST_TIMER_MS));
  }

  function goOn(): void {
    if (!isTold)
      logger.error(
        `Graphile Worker does not end worker pool ${poolId}, whose workers ended ${endsWithinMs} ms ago. ` +
          `It could not record how jobs ended (${unrecorded}). So the shutdown goes on without it. ` +
          "Other workers run these jobs again, once this one has been silent for workerStaleAfter",
      );
    isTold = true;
    for (const act of waiting) act();
  }

  return {
    begins: (worker: Worker) => void workers.add(worker),
    ends(worker: Worker): void {
      workers.delete(worker);
      look();
    },
    fails(action: string): void {
      unrecorded = action;
      look();
    },
    /** Calls `act` if the pool does not end, until the function that it returns is called. */
    whenStuck(act: () => void): () => void {
      waiting.add(act);
      look();
      return () => {
        waiting.delete(act);
        look();
      };
    },
  };
}
