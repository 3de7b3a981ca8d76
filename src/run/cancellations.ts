import type { Job, Logger } from "graphile-worker";
import type { Engine, Queryable } from "../db/engine.ts";
import type { RunningJob } from "./running-jobs.ts";

/** Who cancelled a job, and why. */
export interface Cancellation {
  readonly by: string;
  /** Null: nobody said. */
  readonly reason: string | null;
}

export interface CancellationsContext {
  readonly withPgClient: <T>(callback: (client: Queryable) => Promise<T>) => Promise<T>;
  readonly engine: Pick<Engine, "cancelledJobs">;
  readonly logger: Logger;
  /** Whether the pool has closed its connections. */
  readonly isClosed: () => boolean;
}

/**
 * Tells the runs of a worker pool whose jobs operators have cancelled.
 *
 * The danger: a job is cancelled after its fetch and before its start, and a first attempt asks nobody. Or it is cancelled
 * while the look is under way. The cure: what the last look has found is kept, and each start is compared with it. For
 * lack of cancelled jobs that costs nothing.
 *
 * Jobs are known by the owner of their slot, because the next job of a key may get the same row.
 */
export function makeCancellations({ withPgClient, engine, logger, isClosed }: CancellationsContext) {
  const running = new Map<string, RunningJob>();
  let found: ReadonlyMap<string, Cancellation> = new Map();
  let looking: Promise<void> | undefined;
  let isStale = false;

  /** Looks until nobody has asked for a further look meanwhile. */
  async function lookUntilFresh(): Promise<void> {
    try {
      while (isStale) {
        isStale = false;
        const jobs = await withPgClient(engine.cancelledJobs);
        found = new Map(jobs.map(({ jobId, admission, ...why }) => [keyOf(jobId, admission), why]));
        for (const [key, why] of found) running.get(key)?.cancel(why);
      }
    } catch (error) {
      const { message } = error as Error;
      if (isClosed()) return;
      logger.warn(`Cannot look for cancelled jobs, the next heartbeat does: ${message}`, { error });
    } finally {
      looking = undefined;
    }
  }

  function look(): Promise<void> {
    isStale = true;
    looking ??= lookUntilFresh();
    return looking;
  }

  return {
    /** Somebody has cancelled jobs. Does not reject. */
    look,
    /** The same, if this pool runs jobs: a notification may have been lost. */
    lookIfRunning: async (): Promise<void> => {
      if (running.size > 0) await look();
    },
    started(job: Job, one: RunningJob): void {
      if (!one.ownsSlot) return; // the slot is that of the job it replaced
      const key = keyOf(String(job.id), one.admission);
      running.set(key, one);
      const why = found.get(key);
      if (why) one.cancel(why);
    },
    ended(job: Job, { admission }: RunningJob): void {
      running.delete(keyOf(String(job.id), admission));
    },
  };
}

function keyOf(jobId: string, admission: string): string {
  return `${jobId} ${admission}`;
}
