import type { Job } from "graphile-worker";
import { suggestion } from "../closest.ts";
import { DURATION_EXPECTED, type Duration, isDuration } from "../duration.ts";
import { PolicyDefinitionError } from "../errors.ts";

/**
 * How long a failed job waits for its retry, optionally with another priority or in another partition. `false`: it is not
 * retried, and fails for good.
 */
export type Backoff =
  | Duration
  | false
  | { after: Duration; priority?: number | undefined; partition?: string | undefined };

/** Called after each failed run. `attempt` is that run's `job.attempts`: 1 after the first. */
export type BackoffFunction = (error: unknown, attempt: number, job: Job) => Backoff;

/** About 31 years: longer than any sensible wait, and within the range of PostgreSQL's timestamps. */
const LONGEST_SECONDS = 1e9;

/**
 * The same wait after every failure, until the job's `maxAttempts` are used up.
 *
 * @throws {PolicyDefinitionError} if `after` is no duration
 * @example definePolicy("fetch", { partitionBy: "host", backoff: fixed("5 minutes") });
 */
export function fixed(after: Duration): (error: unknown, attempt: number) => Duration {
  requireDuration("fixed", after);
  return () => after;
}

/**
 * A wait of `base + n ^ power` seconds, at most 10^9. `n` is 0 after the first failure, 1 after the second, and so on.
 *
 * | base, power | 1st | 2nd | 3rd | 4th | 5th |
 * |---|---|---|---|---|---|
 * | 30, 5 | 30 s | 31 s | 62 s | 273 s | 1,054 s |
 * | 0, 2 | 0 s | 1 s | 4 s | 9 s | 16 s |
 *
 * @param options.base seconds, 0 or more
 * @param options.power 0 or more
 * @throws {PolicyDefinitionError} if an option is unknown, missing or negative
 * @example definePolicy("fetch", { partitionBy: "host", backoff: exponential({ base: 30, power: 5 }) });
 */
export function exponential(options: {
  base: number;
  power: number;
}): (error: unknown, attempt: number) => Duration {
  if (typeof options !== "object" || options === null)
    throw new PolicyDefinitionError(`exponential must be given an object of options, got ${String(options)}`);
  for (const key of Object.keys(options)) {
    if (key !== "base" && key !== "power")
      throw new PolicyDefinitionError(
        `unknown option "${key}" of exponential${suggestion(key, ["base", "power"], "options")}`,
      );
  }
  const { base, power } = options;
  requireFromZero("base", base);
  requireFromZero("power", power);
  return (_error, attempt) => seconds(base + earlierFailures(attempt) ** power);
}

/**
 * One wait after the other, and no retry when they are used up.
 *
 * @throws {PolicyDefinitionError} if the list is empty, or an entry is no duration
 * @example definePolicy("fetch", { partitionBy: "host", backoff: list(["10 seconds", "1 minute", "1 hour"]) });
 */
export function list(waits: readonly Duration[]): (error: unknown, attempt: number) => Duration | false {
  if (!Array.isArray(waits) || waits.length === 0)
    throw new PolicyDefinitionError(
      `list must be given an array of at least one duration, got ${JSON.stringify(waits)}`,
    );
  waits.forEach((wait, index) => {
    requireDuration(`list: wait ${index + 1}`, wait);
  });
  const copy = [...waits];
  return (_error, attempt) => copy[earlierFailures(attempt)] ?? false;
}

function requireDuration(key: string, value: unknown): void {
  if (!isDuration(value))
    throw new PolicyDefinitionError(`${key} must be ${DURATION_EXPECTED}, got ${JSON.stringify(value)}`);
}

function requireFromZero(key: string, value: unknown): void {
  if (!Number.isFinite(value) || (value as number) < 0)
    throw new PolicyDefinitionError(
      `exponential: ${key} must be a finite number, 0 or more, got ${String(value)}`,
    );
}

function earlierFailures(attempt: number): number {
  return Math.max(0, attempt - 1);
}

function seconds(amount: number): Duration {
  // rounded to milliseconds, because a duration cannot have an exponent, as in 1e-7
  return `${Math.round(Math.min(amount, LONGEST_SECONDS) * 1000) / 1000} seconds`;
}
