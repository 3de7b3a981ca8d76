import { calendarInWords, counted } from "../counted.ts";
import type { ResolvedValues } from "../gates/index.ts";

/** A gate's own numbers: "60 per 1 min, capacity 60". Null: they come from the job's context. */
export function numbersOf(values: ResolvedValues | null, length: (seconds: number) => string): string {
  if (values === null) return "its numbers come from the context";
  if (Object.keys(values).length === 0) return "those of the shared limit";
  const { rate, per, calendar, shadow: _, per_worker: perWorker, ...others } = values;
  const period = typeof calendar === "string" ? calendarInWords(calendar) : length(Number(per));
  const pace = typeof per === "number" ? [`${rate} per ${period}`] : [];
  const rest = Object.entries(others).filter(([, value]) => value !== null && value !== undefined);
  const each = perWorker === true ? " per worker" : "";
  return [...pace, ...rest.map(([option, value]) => `${option} ${value}${each}`)].join(", ");
}

/** The numbers that an operator has set: "max 4", or "rate 5, burst 7". */
export function limitInWords(set: object): string {
  return Object.entries(set)
    .filter(([, value]) => value !== undefined)
    .map(([option, value]) => `${option} ${value}`)
    .join(", ");
}

/**
 * A key of a partition or of a gate, as it is shown: the empty text is a key as well, and a blank at an end makes another key, so it
 * shows as "␠". Null: there is none.
 */
export function keyInWords(key: string | null | undefined): string {
  return key === "" ? "(empty)" : (key ?? "").replace(BLANKS_AT_ENDS, (blanks) => "␠".repeat(blanks.length));
}

/** Those that nobody sees among them. */
const BLANKS_AT_ENDS = /^[\s\u200b]+|[\s\u200b]+$/g;

/** What a gate counts over. */
export const OVER = {
  partition: "the partition",
  policy: "the policy",
  key: "a key of the context",
} as const;

/** Where a cap comes from the shares of the worker pools: "2 per worker × 3 workers". Undefined: it does not. */
export function sharesInWords({ share, pools }: { share?: number; pools?: number }): string | undefined {
  if (share === undefined || pools === undefined) return undefined;
  return `${share} per worker × ${counted(pools, "worker")}`;
}
