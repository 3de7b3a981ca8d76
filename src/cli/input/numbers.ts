// The options that name a gate's numbers.
import type { LimitValues } from "../../operate/verbs/limits.ts";
import type { Options, Values } from "../command.ts";

/** A gate's numbers. */
export const NUMBERS = {
  max: { kind: "number", meaning: "concurrency: the most jobs at once", default: "as it is" },
  rate: { kind: "number", meaning: "throttle: tokens in each --per", default: "as it is" },
  per: { kind: "text", meaning: 'throttle: a duration, such as "1 minute"', default: "as it is" },
  burst: { kind: "number", meaning: "throttle: tokens of a full bucket", default: "as it is" },
  min: { kind: "number", meaning: "adaptive: the limit never shrinks below", default: "as it is" },
  "initial-max": { kind: "number", meaning: "adaptive: the limit to start from", default: "as it is" },
  "target-lag-ms": { kind: "number", meaning: "adaptive: milliseconds of lag", default: "as it is" },
} as const satisfies Options;

/** The numbers that were given. */
export function numbersOf(values: Values<typeof NUMBERS>): LimitValues {
  const { max, rate, burst, min } = values;
  return {
    ...{ max, rate, burst, min },
    per: values.per as LimitValues["per"], // setLimit checks it
    ...{ initialMax: values["initial-max"], targetLagMs: values["target-lag-ms"] },
  };
}
