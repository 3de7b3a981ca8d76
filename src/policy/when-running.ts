import { check, checkOptions, type Rule } from "../checks/options.ts";
import { DURATION_EXPECTED, type Duration, durationMs, isDuration, LONGEST_TIMER_MS } from "../duration.ts";

/** The option `whenRunning`, of a policy or of a job. */
export type WhenRunning = "keep" | "cancel" | { readonly cancel: true; readonly minRun: Duration };

const EXPECTED = '"keep", "cancel" or { cancel: true, minRun: "10 seconds" }';

export const whenRunningRule: Rule = {
  expects: EXPECTED,
  accepts: (value) =>
    value === "keep" ||
    value === "cancel" ||
    (typeof value === "object" && value !== null && !Array.isArray(value)),
};

const onlyTrue: Rule = { expects: "true", accepts: (value) => value === true };

/** A timer of the worker delays the cancel. */
const minRunRule: Rule = {
  expects: `${DURATION_EXPECTED}, 24 days at most`,
  accepts: (value) => isDuration(value) && durationMs(value) <= LONGEST_TIMER_MS,
};

/**
 * After how many seconds of a run a newer job of its key cancels it. Null: none does.
 *
 * @throws {ArgumentError} naming the option, its value and what is expected
 */
export function readWhenRunning(key: string, whenRunning: unknown): number | null {
  if (whenRunning === undefined || whenRunning === "keep") return null;
  check(key, whenRunning, whenRunningRule);
  if (whenRunning === "cancel") return 0;
  checkOptions(key, whenRunning, ["cancel", "minRun"]);
  const { cancel, minRun } = whenRunning;
  check(`${key}: cancel`, cancel, onlyTrue);
  check(`${key}: minRun`, minRun, minRunRule);
  return durationMs(minRun as Duration) / 1000;
}
