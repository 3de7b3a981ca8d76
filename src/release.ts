import type { Logger, WithPgClient } from "graphile-worker";
import type { Engine, FinishedJob } from "./db/engine.ts";
import { type EventSink, emit } from "./events.ts";

/** Jobs in one flush at most. */
const BATCH = 1000;
/** Jobs whose failure Graphile Worker is about to record come again after this, growing while nothing helps. */
const FIRST_RETRY_MS = 10;
const LAST_RETRY_MS = 1000;

export interface ReleaseContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly events: EventSink;
  readonly logger: Logger;
  /** Called after each flush: capacity may be free. */
  readonly onReleased: () => void;
}

/**
 * Collects finished jobs and releases them in groups: whatever finished while the last flush ran goes with the next.
 * What a flush could not deal with, and a flush that failed, is tried again until it is done or the queue is closed.
 */
export function makeReleaseQueue(context: ReleaseContext) {
  const waiting: FinishedJob[] = [];
  let flushing: Promise<void> | null = null;
  let closed = false;
  let wake = (): void => {};

  /** Adds a finished job; resolves when its group was flushed (not when it was dealt with). */
  function push(job: FinishedJob): Promise<void> {
    waiting.push(job);
    wake();
    flushing ??= flushAll().finally(() => {
      flushing = null;
    });
    return flushing;
  }

  async function flushAll(): Promise<void> {
    await Promise.resolve(); // what finishes in the same turn goes together
    let delay = FIRST_RETRY_MS;
    while (waiting.length > 0) {
      const left = await flush(waiting.splice(0, BATCH));
      const fresh = waiting.length > 0;
      waiting.push(...left);
      if (left.length === 0) delay = FIRST_RETRY_MS;
      if (left.length === 0 || fresh) continue;
      if (closed && delay > LAST_RETRY_MS) return;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, delay);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      delay = closed ? delay * 2 : Math.min(delay * 2, LAST_RETRY_MS);
    }
  }

  /** Returns the jobs that have to come again. */
  async function flush(batch: FinishedJob[]): Promise<FinishedJob[]> {
    const started = performance.now();
    try {
      const done = new Set(await context.withPgClient((client) => context.engine.release(client, batch)));
      const durationMs = performance.now() - started;
      if (done.size > 0) emit(context.events, "dispatchPolicy:release", { jobs: done.size, durationMs });
      context.onReleased();
      return batch.filter((job) => !done.has(job.job));
    } catch (error) {
      context.logger.warn(
        `Could not release ${batch.length} finished jobs, trying again: ${messageOf(error)}`,
        { error },
      );
      return batch;
    }
  }

  return {
    push,
    /** Resolves when nothing is waiting. */
    idle: async (): Promise<void> => {
      while (flushing) await flushing;
    },
    /** Flushes what is left, with a last few tries, and reports what could not be dealt with. */
    close: async (): Promise<void> => {
      closed = true;
      wake();
      while (flushing) await flushing;
      if (waiting.length > 0) {
        context.logger.warn(
          `${waiting.length} finished jobs were not released at shutdown; a sweep will do it`,
        );
      }
    },
  };
}

export type ReleaseQueue = ReturnType<typeof makeReleaseQueue>;

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
