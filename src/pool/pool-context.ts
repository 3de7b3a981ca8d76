import type { Job, WithPgClient } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import type { EventSink } from "../events.ts";
import type { Logger } from "../log.ts";
import type { Fetching } from "../run/adoption.ts";
import type { JobsInHand, RunningJob } from "../run/running-jobs.ts";
import type { Settings } from "../settings.ts";

/** The Graphile Worker pool that a runtime is made for. */
export interface PoolContext {
  readonly poolId: string;
  /** It ends when it finds no job (runOnce). */
  readonly oneShot: boolean;
  /** How many jobs this pool runs at once. */
  readonly slots: number;
  readonly tasks: readonly string[];
  readonly fetching: Fetching;
  readonly hand: JobsInHand;
  /** What is known of the run of a job with a slot. */
  readonly runOf: (job: Job) => RunningJob | undefined;
  /** A promotion has given the row of a job that runs to others. */
  readonly disown: (job: Job) => void;
  /** Looks whether notifications still come; if not, Graphile Worker listens anew. */
  readonly checkListening: () => void;
  readonly clock: PoolClock;
  readonly withPgClient: WithPgClient;
  /** The host's pg pool, if the host was given one. */
  readonly pgPool: unknown;
  readonly engine: Engine;
  readonly settings: Settings;
  readonly events: EventSink;
  readonly logger: Logger;
}

/** How far the clock that a pool fetches jobs by is behind the database's clock, in milliseconds. */
export interface PoolClock {
  /** As measured. */
  readonly behindMs: number;
  /** At most: the measurement may be wrong by its error. */
  readonly atMostMs: number;
}

/** A heartbeat that failed is repeated after this. */
export const ERROR_SLEEP_MS = 1000;

/** A pool runs, then stops, then is closed. Each signal aborts when its state begins. */
export interface PoolLife {
  /** It leads no more, and gets no more jobs. */
  readonly stopping: boolean;
  readonly onStop: AbortSignal;
  /** It heartbeats no more. */
  readonly closed: boolean;
  readonly onClose: AbortSignal;
}

/** The life of a pool. Only `makeWorkerPool` changes it. */
export function makeLife(): PoolLife & { stop(): void; close(): void } {
  const stopping = new AbortController();
  const closed = new AbortController();
  return {
    get stopping(): boolean {
      return stopping.signal.aborted;
    },
    onStop: stopping.signal,
    get closed(): boolean {
      return closed.signal.aborted;
    },
    onClose: closed.signal,
    stop: (): void => stopping.abort(),
    close(): void {
      stopping.abort();
      closed.abort();
    },
  };
}
