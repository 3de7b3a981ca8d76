import {
  aBoolean,
  aDate,
  anyText,
  arrayOf,
  check,
  checkOptions,
  numberFromZero,
  oneOf,
  optional,
  type Rule,
  show,
  wholeNumber,
} from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import { type AnyPolicy, isPolicy, type Until } from "../policy/policy.ts";
import { OUTCOMES } from "./outcomes.ts";

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

const anObject: Rule = {
  expects: "an object",
  accepts: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

const aPolicy: Rule = { expects: "a policy made by definePolicy", accepts: isPolicy };

/** Graphile Worker's, or a staged one. */
const jobId: Rule = {
  expects: 'a job id, such as "1000000000000001"',
  accepts: (value) => /^[1-9][0-9]{0,17}$/.test(String(value)) && typeof value !== "object",
};

/** Of a job group, or the last one of a page. */
export const anId: Rule = { expects: 'an id, such as "7"', accepts: jobId.accepts };

/** The rules for the options of verbs. An option means the same in each verb. */
const OPTIONS = {
  policy: anyText,
  task: anyText,
  partition: anyText,
  all: aBoolean,
  gate: anyText,
  key: anyText,
  set: anObject,
  where: anObject,
  context: anObject,
  definition: aPolicy,
  reason: anyText,
  by: anyText,
  from: aDate,
  until: aDate,
  since: aDate,
  now: aDate,
  resetAt: aDate,
  forMs: numberFromZero,
  cost: numberFromZero,
  remaining: numberFromZero,
  count: wholeNumber(1),
  limit: wholeNumber(1),
  most: wholeNumber(1),
  drain: aBoolean,
  dryRun: aBoolean,
  enabled: aBoolean,
  force: aBoolean,
  into: anyText,
  toPartition: anyText,
  toPolicy: anyText,
  shard: anyText,
  search: anyText,
  after: anyText,
  error: anyText,
  outcome: oneOf(...OUTCOMES),
  jobKey: anyText,
  jobId,
  id: jobId,
  ids: arrayOf(jobId, "job ids"),
  group: anId,
} satisfies Record<string, Rule>;

type Option = keyof typeof OPTIONS;

/**
 * Checks the options of a verb: `needs` are required, `takes` may be left out.
 *
 * @throws {ArgumentError} naming verb, option, value and expectation
 */
export function checkVerb(
  verb: string,
  options: object,
  { needs = [], takes = [] }: { needs?: readonly Option[]; takes?: readonly Option[] },
): void {
  checkOptions(verb, options, [...needs, ...takes]);
  const given: Partial<Record<Option, unknown>> = options;
  for (const key of needs) check(`${verb}: ${key}`, given[key], OPTIONS[key]);
  for (const key of takes) optional(`${verb}: ${key}`, given[key], OPTIONS[key]);
}

/** @throws {ArgumentError} unless the target names a policy, or is `{ all: true }` */
export function checkTarget(verb: string, target: Target): void {
  const { policy, all } = target as { policy?: unknown; all?: unknown };
  if ((typeof policy === "string") === (all === true)) {
    throw new ArgumentError(
      `${verb}: expected { policy } or { all: true }, got policy ${show(policy)}, all ${show(all)}`,
    );
  }
}

/**
 * The end of a hold as SQL takes it. A length of time counts by the database's clock.
 *
 * @throws {ArgumentError} unless exactly one of them is given
 */
export function endOf(verb: string, { until, forMs }: Until) {
  if ((until === undefined) === (forMs === undefined)) {
    throw new ArgumentError(
      `${verb}: expected { until: Date } or { forMs: number }, got until ${show(until)}, forMs ${show(forMs)}`,
    );
  }
  return until ? { until } : { for: `${forMs} milliseconds` };
}
