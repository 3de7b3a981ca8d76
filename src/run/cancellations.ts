import type { Job } from "graphile-worker";
import type { Engine, Queryable } from "../db/engine.ts";
import { CancelledError } from "../errors.ts";
import { type EventSink, emit } from "../events.ts";
import type { Logger } from "../log.ts";
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
  readonly events: EventSink;
  /** Whether the pool has closed its connections. */
  readonly isClosed: () => boolean;
}

/** A cancel as a look has found it. */
interface Found extends Cancellation {
  readonly admission: string;
  /** Seconds after its begin until which the run may go on. Null: it is told at once. */
  readonly minRun: number | null;
}

/**
 * Tells the runs of a worker pool whose jobs operators, or newer jobs of their keys, have cancelled.
 *
 * The danger: a job is cancelled after its fetch and before its start, and a first attempt asks nobody. Or it is cancelled
 * while the look is under way. The cure: what the last look has found is kept, and each start is compared with it. For
 * lack of cancelled jobs that costs nothing.
 *
 * Jobs are known by the owner of their slot as well, because the next job of a key may get the same row.
 */
export function makeCancellations({ withPgClient, engine, logger, events, isClosed }: CancellationsContext) {
  const running = new Map<Job, RunningJob>();
  const delayed = new Map<Job, NodeJS.Timeout>();
  let found: ReadonlyMap<string, Found> = new Map();
  let looking: Promise<void> | undefined;
  let isStale = false;

  /** Looks until nobody has asked for a further look meanwhile. */
  async function lookUntilFresh(): Promise<void> {
    try {
      while (isStale) {
        isStale = false;
        const jobs = await withPgClient(engine.cancelledJobs);
        found = new Map(jobs.map((cancelled) => [cancelled.jobId, cancelled]));
        for (const [job, one] of running) cancelIfFound(job, one, one.startedAt);
      }
    } catch (error) {
      const { message } = error as Error;
      if (isClosed()) return;
      logger.warn(`Cannot look for cancelled jobs, the next heartbeat does: ${message}`, { error });
    } finally {
      looking = undefined;
    }
  }

  /** `begunAt`: null if it was cancelled before it begins. Then it does not run at all. */
  function cancelIfFound(job: Job, one: RunningJob, begunAt: number | null): void {
    if (found.size === 0) return;
    const cancelled = found.get(String(job.id));
    if (cancelled?.admission !== one.admission) return;
    const leftMs = begunAt === null ? 0 : begunAt + Number(cancelled.minRun ?? 0) * 1000 - performance.now();
    forgetDelay(job);
    if (leftMs <= 0) cancelRun(job, one, cancelled, events);
    else delayed.set(job, setTimeout(cancelRun, leftMs, job, one, cancelled, events).unref());
  }

  function forgetDelay(job: Job): void {
    if (delayed.size === 0) return;
    clearTimeout(delayed.get(job));
    delayed.delete(job);
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
      running.set(job, one);
      cancelIfFound(job, one, null);
    },
    /** The run of a job with this id. */
    runOf: (jobId: string): readonly [Job, RunningJob] | undefined =>
      [...running].find(([{ id }]) => String(id) === jobId),
    ended(job: Job): void {
      running.delete(job);
      forgetDelay(job);
    },
  };
}

/** Tells a run of a cancelled job to end. Only the first call counts. */
export function cancelRun(
  job: Job,
  { policy, signal }: Pick<RunningJob, "policy" | "signal">,
  { by, reason }: Cancellation,
  events: EventSink,
): void {
  if (signal.cancelled) return;
  const jobId = String(job.id);
  signal.abort(new CancelledError(jobId, { by, reason }));
  const { attempts: attempt } = job;
  emit(events, "dispatchPolicy:runCancelled", { policy: policy.identifier, jobId, attempt, by, reason });
}
