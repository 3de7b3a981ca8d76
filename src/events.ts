import { errorText } from "./error-text.ts";
import type { Logger } from "./log.ts";

/** What each event of a verb has: who did it and why, as the call said, and what came of it, as its result says. */
type Act = {
  /** How many policies, partitions, jobs or limiters the target matches. */
  matched: number;
  /** How many of them have changed. */
  changed: number;
  /** Null: the database user. */
  by: string | null;
  reason: string | null;
};

/** A policy (null: all, or not named) or one of its partitions (null: all, or not named). */
type Aim = { policy: string | null; partition: string | null };

/** This package's events, one for each transition, on Graphile Worker's own emitter or the one of the option `events`. */
export type PolicyEventMap = {
  /**
   * Jobs of one policy were staged by one call of `addJob` or `addJobs`, or of the helpers of a task, and the call is
   * committed. `partition` is null if they are of several, or if it is not worked out yet. `count` includes jobs that
   * replace one of their key, and jobs that `unsafe_dedupe` keeps out.
   */
  "dispatchPolicy:stage": { policy: string; partition: string | null; count: number };
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
  /**
   * Jobs that one pass gave Graphile Worker. `shard` is null if a release, a call of utils or helpers that added the job,
   * or a step of the verb `admit` did it.
   */
  "dispatchPolicy:admit": { policy: string; shard: string | null; count: number };
  /**
   * An error that nobody expects stopped the admission of a few jobs, in a release or in the call that adds one. Nothing is
   * lost: a pass admits them, later. `error`: its SQLSTATE, its place and its message. Processes that lead the policy say so.
   */
  "dispatchPolicy:smallWayFailed": { policy: string; error: string };
  /** Partitions that kept due jobs after a pass, for one reason (see `Reason`). */
  "dispatchPolicy:deny": { policy: string; shard: string | null; reason: string; partitions: number };
  /**
   * Jobs were dropped. `max_pending`: the backlog was full when they, or newer jobs, were added. `busy`: the gates denied
   * them. `unique`: their keys are remembered (`uniqueFor`). `partition` is null if it was not worked out yet.
   */
  "dispatchPolicy:drop": {
    policy: string;
    partition: string | null;
    reason: "max_pending" | "busy" | "unique";
    count: number;
  };
  /** Jobs were dropped, because they were not admitted before they expired. `partition` as in `dispatchPolicy:drop`. */
  "dispatchPolicy:expire": { policy: string; partition: string | null; count: number };
  /** Graphile Worker or the policy's functions refused jobs. They are quarantined with their errors. */
  "dispatchPolicy:quarantine": { policy: string; count: number };
  /** A copy of a job that was added past its policy is staged or quarantined. The original completes without running. */
  "dispatchPolicy:copy": { policy: string; jobId: string; stagedId: string; quarantined: boolean };
  /**
   * A worker pool runs its share of a scope key at a gate with `perWorker`, so it did not run another job. That is staged
   * again, and the original completes without running. `key`: null, if the gate counts over the whole policy.
   */
  "dispatchPolicy:requeue": { policy: string; jobId: string; gate: string; key: string | null; max: number };
  /**
   * Another server answers this pool than before, as after a failover: `server` is its system identifier and timeline. The pool has said which `runs` of jobs with
   * a slot go on; `occupied` of them had no slot there, and have one again.
   */
  "dispatchPolicy:promoted": { server: string; runs: number; occupied: number };
  /**
   * This pool had jobs locked that it did not have, because an answer of the database was lost, or a promotion had lost their ends.
   * They are unlocked, or completed if they had ended well.
   */
  "dispatchPolicy:gaveUp": { unlocked: number; completed: number };
  /** Jobs that waited in Graphile Worker were moved into staging, because this process had caught many of them. */
  "dispatchPolicy:adopt": { policy: string; task: string; count: number };
  /** A flush released finished jobs. */
  "dispatchPolicy:release": { jobs: number; durationMs: number };
  /** A job is not retried, because its back-off is `false`. */
  "dispatchPolicy:giveUp": { policy: string; jobId: string; attempt: number };
  /** A run lasted longer than its policy's `runTimeout`, and was told to end. */
  "dispatchPolicy:runTimeout": { policy: string; jobId: string; attempt: number; timeoutMs: number };
  /** An operator, or a newer job of its key, cancelled a job: its run was told to end, or did not begin. */
  "dispatchPolicy:runCancelled": {
    policy: string;
    jobId: string;
    attempt: number;
    by: string;
    reason: string | null;
  };
  /** This process began (or ceased) to lead a shard. */
  "dispatchPolicy:leader": { policy: string; shard: string; leads: boolean };
  /** Jobs ended in workers without this package, and their slots were freed. */
  "dispatchPolicy:endedElsewhere": { policy: string; count: number };
  /** A sweep ended. Every count is zero in a healthy run. `failed` names the steps that failed. */
  "dispatchPolicy:sweep": { repaired: Record<string, number>; failed: readonly string[] };
  /** A partition was held: by the verb, by a task's `helpers.dispatchPolicy.hold`, or by a `RetryAfter`. Or a gate's key was. */
  "dispatchPolicy:hold": Act & {
    policy: string;
    /** Null: a key of a gate was held. */
    partition: string | null;
    /** Null: a partition was held. */
    gate: string | null;
    /** Null: a partition was held, or a gate over the policy. */
    key: string | null;
    /** When it ends, if the call gave a time. */
    until: Date | null;
    /** Its length in milliseconds, if the call gave that. */
    forMs: number | null;
  };
  /** Admission was stopped. `policy` is null if of every policy. `until` is null if until a `resume`. */
  "dispatchPolicy:pause": Act & Aim & { until: Date | null };
  /** A pause or a hold was lifted. `policy` is null if of every policy. */
  "dispatchPolicy:resume": Act & Aim;
  /** A limit was set, or cleared: then `set` is null. `key` is null if for every key of the gate. */
  "dispatchPolicy:limit": Act & {
    policy: string;
    gate: string;
    key: string | null;
    /** The context values whose partitions it is for. Null: it is not by context. */
    where: Readonly<Record<string, unknown>> | null;
    /** The values by the names of the gate's options, as `setLimit` takes them. */
    set: Readonly<Record<string, unknown>> | null;
    /** When it begins. Null: at once. */
    from: Date | null;
    /** When it ends. Null: when it is cleared. */
    until: Date | null;
  };
  /** The context of partitions was changed, by one step of the verb `refreshContext`. `partition` is null if of several. */
  "dispatchPolicy:refreshContext": Act & {
    policy: string;
    partition: string | null;
    /** The context values whose partitions it is for. Null: whatever they have. */
    where: Readonly<Record<string, unknown>> | null;
    /** The values that changed. */
    context: Readonly<Record<string, unknown>>;
  };
  /** A policy was switched on or off by an operator. */
  "dispatchPolicy:switch": Act & { policy: string; enabled: boolean };
  /** Staged jobs of a partition were moved, by one step of the verb `move`. */
  "dispatchPolicy:move": Act & {
    policy: string;
    partition: string;
    /** The policy that got them. Null: the call named none. */
    toPolicy: string | null;
    /** The partition that got them. Null: the policy works it out. */
    toPartition: string | null;
  };
  /** Staged jobs were removed by an operator, in a step of `remove`. */
  "dispatchPolicy:remove": Act & Aim;
  /** Jobs were cancelled by an operator. `running` of them run, and were told to end. */
  "dispatchPolicy:cancel": Act & Aim & { running: number };
  /** Jobs that had failed for good were brought back, by one step of the verb `retry`. */
  "dispatchPolicy:retry": Act & Aim;
  /** The slots of a job in flight were freed by an operator. */
  "dispatchPolicy:releaseSlots": Act & { jobId: string };
};

/** The part of an emitter that this package uses. Graphile Worker's WorkerEvents and any EventEmitter have it. */
export interface EventSink {
  emit(name: string, payload: unknown): boolean;
}

/** For processes without an emitter. */
export const noEvents: EventSink = { emit: () => false };

/**
 * The emitter, but a listener that throws stops nothing: what the event tells has happened. Without this, an `addJob` would
 * reject although its job is staged, and its caller would add the job again.
 */
export function safely(events: unknown, logger: () => Logger): EventSink {
  if (!events) return noEvents;
  return {
    emit(name, payload) {
      try {
        return (events as EventSink).emit(name, payload);
      } catch (error) {
        const message = errorText(error);
        logger().error(`A listener of ${name} threw an error, which changes nothing here: ${message}`, {
          error,
        });
        return true;
      }
    },
  };
}

/** An emitter: Graphile Worker's own, or any EventEmitter. */
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

/** Emits an event. */
export function emit<K extends keyof PolicyEventMap>(
  sink: EventSink,
  name: K,
  event: PolicyEventMap[K],
): void {
  sink.emit(name, event);
}
