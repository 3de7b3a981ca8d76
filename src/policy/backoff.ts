import type { Job } from "graphile-worker";
import {
  aDuration,
  check,
  checkOptions,
  declaring,
  numberFromZero,
  oneOf,
  optional,
  positiveDuration,
  type Rule,
} from "../checks/options.ts";
import { type Duration, durationSeconds } from "../duration.ts";

/**
 * How long a failed job waits for its retry, optionally with another priority or in another partition. `false`: it is not
 * retried, and fails for good.
 */
export type Backoff =
  | Duration
  | false
  | { after: Duration; priority?: number | undefined; partition?: string | undefined };

/**
 * Called after each failed run. `attempt` is that run's `job.attempts`: 1 after the first. Of a batch, `error` is an
 * `AggregateError` with the errors of the parts that failed.
 */
export type BackoffFunction = (error: unknown, attempt: number, job: Job) => Backoff;

/** About 31 years: longer than any sensible wait, and within the range of PostgreSQL's timestamps. */
const LONGEST_SECONDS = 1e9;

const aFactor: Rule = {
  expects: "a number, 1 to 1e12",
  accepts: (value) => numberFromZero.accepts(value) && (value as number) >= 1,
};

/**
 * The same wait after every failure, until the job's `maxAttempts` are used up.
 *
 * @throws {PolicyDefinitionError} if `after` is no duration
 * @example definePolicy("fetch", { partitionBy: "host", backoff: fixed("5 minutes") });
 */
export function fixed(after: Duration): (error: unknown, attempt: number) => Duration {
  declaring("", () => check("fixed", after, aDuration));
  return () => after;
}

/**
 * A wait that is multiplied after each failure: `base * factor ^ n`, at most `max`. `n` is 0 after the first failure, 1 after
 * the second, and so on.
 *
 * | base | factor | max | 1st | 2nd | 3rd | 4th | 5th | 6th |
 * |---|---|---|---|---|---|---|---|---|
 * | 1 second | 2 | none | 1 s | 2 s | 4 s | 8 s | 16 s | 32 s |
 * | 10 seconds | 3 | 10 minutes | 10 s | 30 s | 90 s | 270 s | 600 s | 600 s |
 *
 * `jitter` shortens each wait by chance, so that jobs which failed together do not come back together. Of a wait of 8 s:
 *
 * | jitter | the wait is | on average |
 * |---|---|---|
 * | none | 8 s | 8 s |
 * | `"equal"` | 4 to 8 s | 6 s |
 * | `"full"` | 0 to 8 s | 4 s |
 *
 * @param options.base the first wait, longer than 0
 * @param options.factor 1 or more, 2 if it is not set
 * @param options.max the longest wait, longer than 0; 10^9 seconds if it is not set
 * @param options.jitter `"full"` or `"equal"`; none if it is not set
 * @throws {PolicyDefinitionError} if an option is unknown, missing or of another form
 * @example definePolicy("fetch", { partitionBy: "host", backoff: exponential({ base: "1 second", max: "1 hour", jitter: "full" }) });
 */
export function exponential(options: {
  base: Duration;
  factor?: number | undefined;
  max?: Duration | undefined;
  jitter?: "full" | "equal" | undefined;
}): (error: unknown, attempt: number) => Duration {
  declaring("", () => {
    checkOptions("exponential", options, ["base", "factor", "max", "jitter"]);
    check("exponential: base", options.base, positiveDuration);
    optional("exponential: factor", options.factor, aFactor);
    optional("exponential: max", options.max, positiveDuration);
    optional("exponential: jitter", options.jitter, oneOf("full", "equal"));
  });
  const { factor = 2, jitter } = options;
  const base = durationSeconds(options.base);
  const max = options.max === undefined ? LONGEST_SECONDS : durationSeconds(options.max);
  const certain = { none: 1, equal: 0.5, full: 0 }[jitter ?? "none"];
  return (_error, attempt) => {
    const wait = Math.min(base * factor ** earlierFailures(attempt), max);
    return seconds(wait * (certain + (1 - certain) * Math.random()));
  };
}

/**
 * A wait of `base` and `n ^ power` seconds, at most 10^9 seconds. `n` is 0 after the first failure, 1 after the second, and so
 * on.
 *
 * | base | power | 1st | 2nd | 3rd | 4th | 5th |
 * |---|---|---|---|---|---|---|
 * | 30 seconds | 5 | 30 s | 31 s | 62 s | 273 s | 1,054 s |
 * | 0 seconds | 2 | 0 s | 1 s | 4 s | 9 s | 16 s |
 *
 * @param options.base the first wait, 0 or longer
 * @param options.power 0 or more
 * @throws {PolicyDefinitionError} if an option is unknown, missing or of another form
 * @example definePolicy("fetch", { partitionBy: "host", backoff: polynomial({ base: "30 seconds", power: 5 }) });
 */
export function polynomial(options: {
  base: Duration;
  power: number;
}): (error: unknown, attempt: number) => Duration {
  declaring("", () => {
    checkOptions("polynomial", options, ["base", "power"]);
    check("polynomial: base", options.base, aDuration);
    check("polynomial: power", options.power, numberFromZero);
  });
  const { power } = options;
  const base = durationSeconds(options.base);
  return (_error, attempt) => seconds(base + earlierFailures(attempt) ** power);
}

/**
 * One wait after the other, and no retry when they are used up.
 *
 * @throws {PolicyDefinitionError} if the list is empty, or an entry is no duration
 * @example definePolicy("fetch", { partitionBy: "host", backoff: list(["10 seconds", "1 minute", "1 hour"]) });
 */
export function list(waits: readonly Duration[]): (error: unknown, attempt: number) => Duration | false {
  declaring("", () => {
    check("list", waits, {
      expects: "an array of at least one duration",
      accepts: (value) => Array.isArray(value) && value.length > 0,
    });
    waits.forEach((wait, index) => {
      check(`list: wait ${index + 1}`, wait, aDuration);
    });
  });
  const copy = [...waits];
  return (_error, attempt) => copy[earlierFailures(attempt)] ?? false;
}

function earlierFailures(attempt: number): number {
  return Math.max(0, attempt - 1);
}

function seconds(amount: number): Duration {
  // rounded to milliseconds, because a duration cannot have an exponent, as in 1e-7
  return `${Math.round(Math.min(amount, LONGEST_SECONDS) * 1000) / 1000} seconds`;
}
