import type { Logger, Worker, WorkerEvents, WorkerPool } from "graphile-worker";

/** How long Graphile Worker may take to end a pool after the last of its workers. */
const ENDS_WITHIN_MS = 5000;

interface PoolEnd {
  readonly workers: Set<Worker>;
  /** What Graphile Worker could not record. */
  unrecorded: string | undefined;
  /** Shutdowns that wait, a graceful and a forceful one. Each is called when the pool may be stuck from now on. */
  readonly waiting: Set<() => void>;
}

/**
 * Ends shutdowns of worker pools that Graphile Worker would never end.
 *
 * The danger: with `completeJobBatchDelay` or `failJobBatchDelay`, Graphile Worker 0.18.0 counts the batches that are under
 * way. After one that it could not record, each further batch is counted down twice. So its shutdown may wait without end
 * for the count to be 0. The pool heartbeats all the time. So nobody takes it for dead, and its jobs stay locked.
 *
 * The cure: after such a failure, a shutdown goes on without Graphile Worker some seconds after the last worker has ended.
 * The pool then falls silent, and others unlock its jobs.
 */
export function makeShutdowns(own: WorkerEvents, logger: Logger) {
  const ends = new WeakMap<WorkerPool, PoolEnd>();

  function endOf(workerPool: WorkerPool): PoolEnd {
    const end = ends.get(workerPool) ?? { workers: new Set(), unrecorded: undefined, waiting: new Set() };
    ends.set(workerPool, end);
    return end;
  }

  function look(end: PoolEnd): void {
    if (mayBeStuck(end)) for (const begins of end.waiting) begins();
  }

  own.on("worker:create", ({ worker }) => void endOf(worker.workerPool).workers.add(worker));
  own.on("worker:stop", ({ worker }) => {
    const end = endOf(worker.workerPool);
    end.workers.delete(worker);
    look(end);
  });
  own.on("pool:fatalError", ({ workerPool, action }) => {
    const end = endOf(workerPool);
    end.unrecorded = action;
    look(end);
  });

  return {
    /** Waits for Graphile Worker's part of a shutdown. Undefined: it does not end. */
    async graphileWorker<T>(workerPool: WorkerPool, part: PromiseLike<T> | T): Promise<T | undefined> {
      const end = endOf(workerPool);
      const { promise: stuck, resolve } = Promise.withResolvers<undefined>();
      let timer: NodeJS.Timeout | undefined;
      const begins = () => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          logger.error(
            `Graphile Worker does not end worker pool ${workerPool.id}, whose workers ended ${ENDS_WITHIN_MS} ms ago. ` +
              `It could not record how jobs ended (${end.unrecorded}). So the shutdown goes on without it. Other workers ` +
              "run these jobs again, once this one has been silent for workerStaleAfter",
          );
          resolve(undefined);
        }, ENDS_WITHIN_MS);
      };
      end.waiting.add(begins);
      if (mayBeStuck(end)) begins();
      try {
        return await Promise.race([part, stuck]);
      } finally {
        end.waiting.delete(begins);
        clearTimeout(timer);
      }
    },
  };
}

function mayBeStuck({ workers, unrecorded }: PoolEnd): boolean {
  return workers.size === 0 && unrecorded !== undefined;
}
