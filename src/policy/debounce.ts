import { check, checkOptions, positiveDuration, show } from "../checks/options.ts";
import { type Duration, durationSeconds } from "../duration.ts";
import { ArgumentError } from "../errors.ts";

/** The option `debounce`, of a policy or of a job, in seconds. */
export interface Debounce {
  readonly waitSeconds: number;
  readonly maxWaitSeconds: number;
}

/** @throws {ArgumentError} naming the option, its value and what is expected */
export function readDebounce(key: string, debounce: unknown): Debounce | undefined {
  if (debounce === undefined) return undefined;
  checkOptions(key, debounce, ["wait", "maxWait"]);
  const { wait, maxWait } = debounce;
  check(`${key}: wait`, wait, positiveDuration);
  check(`${key}: maxWait`, maxWait, positiveDuration);
  const read = {
    waitSeconds: durationSeconds(wait as Duration),
    maxWaitSeconds: durationSeconds(maxWait as Duration),
  };
  if (read.maxWaitSeconds < read.waitSeconds)
    throw new ArgumentError(
      `${key}: maxWait must not be shorter than wait (${show(wait)}), got ${show(maxWait)}: raise it, or lower wait`,
    );
  return Object.freeze(read);
}
