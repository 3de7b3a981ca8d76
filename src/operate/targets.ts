import {
  aBoolean,
  aDate,
  anyText,
  arrayOf,
  check,
  checkOptions,
  numberFromZero,
  optional,
  type Rule,
  show,
  wholeNumber,
} from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import type { Until } from "../policy/policy.ts";

/** A policy, or one of its partitions, by its key. */
export type PolicyTarget = { policy: string; partition?: string };
/** `{ all: true }` has to be said: `{ policy: undefined }` must never pause the world. */
export type Target = PolicyTarget | { all: true };
/** A partition of a policy, by its key. */
export type PartitionTarget = { policy: string; partition: string };
/** For the audit. */
export type Why = {
  /** Why it is done. */
  reason?: string | undefined;
  /** Who does it. Default: the database user. */
  by?: string | undefined;
};
/** Which limiter: `key` is the scope key; without it the policy-wide gate, or (not for `take`) every key of a keyed one. */
export type LimiterTarget = { policy: string; gate: string; key?: string | undefined };
/** What a verb found, and what it changed. */
export interface Changed {
  /** How many policies, partitions, jobs or limiters the target is. 0: nothing fits it. */
  matched: number;
  /** How many of them are otherwise now. */
  changed: number;
}

const anObject: Rule = {
  expects: "an object",
  accepts: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

/** Graphile Worker's, or a staged one. */
const jobId: Rule = {
  expects: 'a job id, such as "1000000000000001"',
  accepts: (value) => /^[1-9][0-9]{0,17}$/.test(String(value)) && typeof value !== "object",
};

/** What the options of the verbs may be; each means the same wherever it is given. */
const OPTIONS = {
  policy: anyText,
  partition: anyText,
  all: aBoolean,
  gate: anyText,
  key: anyText,
  set: anObject,
  reason: anyText,
  by: anyText,
  from: aDate,
  until: aDate,
  now: aDate,
  forMs: numberFromZero,
  cost: numberFromZero,
  count: wholeNumber(1),
  limit: wholeNumber(1),
  drain: aBoolean,
  dryRun: aBoolean,
  enabled: aBoolean,
  shard: anyText,
  search: anyText,
  after: anyText,
  jobKey: anyText,
  jobId,
  id: jobId,
  ids: arrayOf(jobId, "job ids"),
} satisfies Record<string, Rule>;

type Option = keyof typeof OPTIONS;

/**
 * Checks what a verb was given: `needs` have to be there, `takes` may be.
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

/** @throws {ArgumentError} unless the target names a policy or says all */
export function checkTarget(verb: string, target: Target): void {
  const { policy, all } = target as { policy?: unknown; all?: unknown };
  if ((typeof policy === "string") === (all === true)) {
    throw new ArgumentError(
      `${verb}: expected { policy } or { all: true }, got policy ${show(policy)}, all ${show(all)}`,
    );
  }
}

/**
 * As SQL takes it: a length counts by the database's clock, whatever the clock here says.
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
