import { check, MOST_COUNTED, type Rule, wholeNumber } from "../checks/options.ts";
import { DURATION_EXPECTED, type Duration, durationSeconds, isDuration } from "../duration.ts";

/** How far jobs are admitted ahead of the worker slots. Both null: no bound. */
export interface Ahead {
  /** A number of jobs, whatever their pace. */
  readonly jobs: number | null;
  /** As many jobs as the workers finish in this time. */
  readonly seconds: number | null;
}

const count = wholeNumber(0, MOST_COUNTED);
const aheadRule: Rule = {
  expects: `${count.expects}, ${DURATION_EXPECTED}, or null`,
  accepts: (value) => value === null || isDuration(value) || count.accepts(value),
};

/**
 * Reads the option `ahead`. Undefined stays undefined.
 *
 * @throws {ArgumentError} naming key, value and expectation
 */
export function readAhead(key: string, value: unknown): Ahead | undefined {
  if (value === undefined) return undefined;
  check(key, value, aheadRule);
  if (typeof value === "number") return { jobs: value, seconds: null };
  return { jobs: null, seconds: value === null ? null : durationSeconds(value as Duration) };
}
