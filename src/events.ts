/** This package's events, one for each transition, on Graphile Worker's own emitter. */
export type PolicyEventMap = {
  /** One admission pass that claimed at least one partition. */
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
   * Jobs were dropped. `max_pending`: the backlog was full when they, or newer jobs, were added. `busy`: the gates denied
   * them. `partition` is null if it was not worked out yet.
   */
  "dispatchPolicy:drop": {
    policy: string;
    partition: string | null;
    reason: "max_pending" | "busy";
    count: number;
  };
  /** Graphile Worker or the policy's functions refused jobs. They are set aside with their errors. */
  "dispatchPolicy:setAside": { policy: string; count: number };
  /** A copy of a job that was added past its policy is staged or set aside. The original completes without running. */
  "dispatchPolicy:takeOver": { policy: string; jobId: string; stagedId: string; setAside: boolean };
  /** Jobs that waited in Graphile Worker were moved into staging, because this process had caught many of them. */
  "dispatchPolicy:adopt": { policy: string; task: string; count: number };
  /** A flush released finished jobs. */
  "dispatchPolicy:release": { jobs: number; durationMs: number };
  /** A job is not retried, because its back-off is `false`. */
  "dispatchPolicy:giveUp": { policy: string; jobId: string; attempt: number };
  /** This process began (or ceased) to lead a shard. */
  "dispatchPolicy:leader": { policy: string; shard: string; leads: boolean };
  /** Jobs ended in workers without this package, and their slots were given back. */
  "dispatchPolicy:endedElsewhere": { policy: string; count: number };
  /** A sweep ended. Every count is zero in a healthy run. `failed` names the steps that failed. */
  "dispatchPolicy:sweep": { repaired: Record<string, number>; failed: readonly string[] };
};

/** The part of an emitter that this package uses. Graphile Worker's WorkerEvents and any EventEmitter have it. */
export interface EventSink {
  emit(name: string, payload: unknown): boolean;
}

/** For processes without Graphile Worker's emitter. */
export const noEvents: EventSink = { emit: () => false };

type Listenable = {
  // biome-ignore lint/suspicious/noExplicitAny: Graphile Worker's emitter is typed for its own events only
  on(name: any, listener: (...args: any[]) => void): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  off(name: any, listener: (...args: any[]) => void): unknown;
};

/**
 * Graphile Worker's emitter, typed for this package's events. Its own type WorkerEventMap cannot be extended.
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

/** Emits an event. If a listener throws, so does this, as in Graphile Worker. */
export function emit<K extends keyof PolicyEventMap>(
  sink: EventSink,
  name: K,
  event: PolicyEventMap[K],
): void {
  sink.emit(name, event);
}
