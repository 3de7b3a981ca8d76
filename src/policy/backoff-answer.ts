import { aDuration, check, checkOptions, optional, wholeNumber } from "../checks/options.ts";
import { type Duration, durationMs } from "../duration.ts";
import { keyText } from "./key.ts";

/** A back-off that was checked and read. */
export interface ResolvedBackoff {
  readonly afterMs: number;
  readonly priority?: number;
  readonly partition?: string;
}

/**
 * Reads the result of a `backoff` function.
 *
 * @throws {ArgumentError} if it is no back-off
 */
export function readBackoff(answer: unknown): ResolvedBackoff | false {
  if (answer === false) return false;
  if (typeof answer !== "object" || answer === null) {
    check("backoff's answer", answer, { ...aDuration, expects: `${aDuration.expects}, { after }, or false` });
    return { afterMs: durationMs(answer as Duration) };
  }
  checkOptions("backoff's answer", answer, ["after", "priority", "partition"]);
  const { after, priority, partition } = answer;
  check("backoff's answer: after", after, aDuration);
  optional("backoff's answer: priority", priority, wholeNumber(-32768, 32767));
  return {
    afterMs: durationMs(after as Duration),
    ...(priority === undefined ? {} : { priority: priority as number }),
    ...(partition === undefined ? {} : { partition: keyText("backoff's answer: partition", partition) }),
  };
}
