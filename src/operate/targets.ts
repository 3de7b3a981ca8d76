import type { AnyPolicy } from "../policy/policy.ts";

/** The same options, in which the policy itself may stand in the place of its name. */
export type ByPolicy<Options> = Options extends unknown
  ? { [K in keyof Options]: K extends "policy" | "toPolicy" | "into" ? Options[K] | AnyPolicy : Options[K] }
  : never;

/** A policy, or one of its partitions. */
export type PolicyTarget = {
  /** The policy's name. An unknown one is an {@link UnknownPolicyError}. */
  policy: string;
  /** The partition's key, at most 1024 bytes. Default: all of the policy. */
  partition?: string | undefined;
};
/** `{ all: true }` must be explicit, so that `{ policy: undefined }` never pauses every policy. */
export type Target =
  | PolicyTarget
  | {
      /** Every policy. */
      all: true;
    };
/** One partition of a policy. */
export type PartitionTarget = {
  /** The policy's name. An unknown one is an {@link UnknownPolicyError}. */
  policy: string;
  /** The partition's key, at most 1024 bytes. */
  partition: string;
};
/** What a hold stops: one partition, or all partitions with one key of a gate. */
export type HoldTarget =
  | (PartitionTarget & {
      /** Not beside `partition`. */
      gate?: undefined;
      /** Only beside `gate`. */
      key?: undefined;
    })
  | {
      /** The policy's name. An unknown one is an {@link UnknownPolicyError}. */
      policy: string;
      /** The gate's name. An unknown one is an {@link ArgumentError}. */
      gate: string;
      /** The scope key, such as an account. Required, unless the gate counts over the policy. */
      key?: string | undefined;
      /** Not beside `gate`. */
      partition?: undefined;
    };
/** For the audit. */
export type Why = {
  /** Why it is done. */
  reason?: string | undefined;
  /** Who does it. Default: the database user. */
  by?: string | undefined;
};
/** A gate of a policy, or one of its limiters. */
export type LimiterTarget = {
  /** The policy's name. An unknown one is an {@link UnknownPolicyError}. */
  policy: string;
  /** The gate's name. An unknown one is an {@link ArgumentError}. */
  gate: string;
  /**
   * The scope key of the limiter: a partition's key for a gate of scope `partition`. Default: the gate over the policy, or
   * (not for `take` and `sync`) every key of the gate.
   */
  key?: string | undefined;
};
/**
 * Values by their names in the context, such as `{ plan: "free" }`. It stands for the partitions whose context has all of
 * them, and for those to come.
 */
export type ContextValues = Readonly<Record<string, string | number | boolean>>;

/** The target of a limit: a gate, one of its limiters by `key`, or those of some partitions by `where`. */
export type LimitTarget = LimiterTarget & {
  /**
   * The limiters of the partitions whose context has these values, also of partitions to come. Only for a gate over the
   * partition, and not beside `key`. Default: it does not go by context.
   */
  where?: ContextValues | undefined;
};

/** The result of a verb. */
export interface Changed {
  /** How many policies, partitions, jobs or limiters the target matches. 0: none. */
  matched: number;
  /** How many of them have changed. */
  changed: number;
}

/** The result of a verb that also acts on what is still to come. */
export interface Stored extends Changed {
  /** True: nothing matches yet. It is kept, and takes effect with the first job that matches. */
  stored: boolean;
}

/** What a dry run adds to the result of a verb that stops, goes on or limits. Without `dryRun` they are missing. */
export interface Reach {
  /** How many known partitions it concerns. */
  partitions?: number;
  /** How many jobs of these wait in staging. */
  staged?: number;
  /** How many jobs of these are in flight. */
  inFlight?: number;
}

/** Of a verb that can count before it changes something. */
export type DryRun = {
  /** Only counts: the call changes nothing, leaves no row in the audit, and the result says what it concerns. Default false. */
  dryRun?: boolean | undefined;
};
