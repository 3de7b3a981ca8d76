/** What happened, one event per transition, on Graphile Worker's own emitter. */
export type PolicyEventMap = {
  /** One admission pass that looked at something. */
  "dispatchPolicy:tick": {
    policy: string;
    shard: string | null;
    claimed: number;
    admitted: number;
    /** Partitions that kept due jobs, by reason. */
    denied: Record<string, number>;
    durationMs: number;
  };
  /** Jobs handed to Graphile Worker by one pass. */
  "dispatchPolicy:admit": { policy: string; shard: string | null; count: number };
  /** Partitions that kept due jobs after a pass, for one reason (see `Reason`). */
  "dispatchPolicy:deny": { policy: string; shard: string | null; reason: string; partitions: number };
  /**
   * Jobs that were dropped: `max_pending` when they were added (or, the older ones, when others were), `busy` when the
   * gates denied them. `partition` is null where it was still to be worked out.
   */
  "dispatchPolicy:drop": {
    policy: string;
    partition: string | null;
    reason: "max_pending" | "busy";
    count: number;
  };
  /** Jobs that Graphile Worker refused, set aside with their errors. */
  "dispatchPolicy:setAside": { policy: string; count: number };
  /** A job that was added past its policy is staged instead of run, or set aside; the original completes as it is. */
  "dispatchPolicy:takeOver": { policy: string; jobId: string; stagedId: string; setAside: boolean };
  /** A flush of finished jobs that gave back what they held. */
  "dispatchPolicy:release": { jobs: number; durationMs: number };
  /** A job whose back-off said not to retry it. */
  "dispatchPolicy:giveUp": { policy: string; jobId: string; attempt: number };
  /** This process began (or ceased) to lead the ticks of a shard. */
  "dispatchPolicy:leader": { policy: string; shard: string; leads: boolean };
  /** A repair pass; every count is zero in a healthy run. `failed` names the steps that failed. */
  "dispatchPolicy:sweep": { repaired: Record<string, number>; failed: readonly string[] };
};

/** The part of an emitter that this package uses: Graphile Worker's WorkerEvents, or any EventEmitter. */
export interface EventSink {
  emit(name: string, payload: unknown): boolean;
}

/** For processes that have no emitter of Graphile Worker's. */
export const noEvents: EventSink = { emit: () => false };

type Listenable = {
  // biome-ignore lint/suspicious/noExplicitAny: Graphile Worker's emitter is typed for its own events only
  on(name: any, listener: (...args: any[]) => void): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  off(name: any, listener: (...args: any[]) => void): unknown;
};

/**
 * Graphile Worker's emitter, typed for this package's events: its WorkerEventMap is an alias and cannot be added to.
 *
 * @example policyEvents(runner.events).on("dispatchPolicy:tick", ({ policy, admitted }) => count(policy, admitted));
 */
export function policyEvents(events: Listenable): {
  on<K extends keyof PolicyEventMap>(name: K, listener: (event: PolicyEventMap[K]) => void): void;
  off<K extends keyof PolicyEventMap>(name: K, listener: (event: PolicyEventMap[K]) => void): void;
} {
  return {
    on: (name, listener) => void events.on(name, listener),
    off: (name, listener) => void events.off(name, listener),
  };
}

/** Emits to whoever listens; a listener that throws is its own problem, as in Graphile Worker. */
export function emit<K extends keyof PolicyEventMap>(
  sink: EventSink,
  name: K,
  event: PolicyEventMap[K],
): void {
  sink.emit(name, event);
}
