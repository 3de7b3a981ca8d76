// Words of verbs: for the answers of commands, and for whoever reads the audit.
import { grouped, some } from "../counted.ts";
import { keyInWords } from "./gate-words.ts";
import type { ContextValues, PolicyTarget, Reach, Target } from "./targets.ts";

const UNITS: readonly (readonly [below: number, ms: number, unit: string])[] = [
  [1000, 1, "ms"],
  [120_000, 1000, "s"],
  [7_200_000, 60_000, "min"],
  [172_800_000, 3_600_000, "h"],
];

/** A length of time with its largest unit, as the sentences of `explain` have it: "12 min". */
export function inWords(ms: number): string {
  const [, size, unit] = UNITS.find(([below]) => ms < below) ?? [0, 86_400_000, "days"];
  return `${Math.round(Math.max(ms, 0) / size)} ${unit}`;
}

/** How long ago a time is, or when it comes: "12 min ago", "in 30 s". Null: empty. */
export function fromNow(time: Date | null, now = Date.now()): string {
  if (time === null) return "";
  const ms = time.getTime() - now;
  return ms > 0 ? `in ${inWords(ms)}` : `${inWords(-ms)} ago`;
}

/** A time of this machine's zone, which the options take as it stands: 2026-11-24T23:05:00+01:00. */
export function atTime(time: Date): string {
  const behind = time.getTimezoneOffset();
  const local = new Date(time.getTime() - behind * 60_000).toISOString().slice(0, 19);
  const two = (value: number) => String(Math.floor(Math.abs(value))).padStart(2, "0");
  return `${local}${behind > 0 ? "-" : "+"}${two(behind / 60)}:${two(Math.abs(behind) % 60)}`;
}

/** What a verb concerns: "1 partition, 3 staged jobs, 2 in flight". */
export function reached({ partitions = 0, staged = 0, inFlight = 0 }: Reach): string {
  return `${some(partitions, "partition")}, ${some(staged, "staged job")}, ${grouped(inFlight)} in flight`;
}

/** A target: "policy fetch", "partition ep1 of policy fetch" or "every policy". */
export function named(target: Target): string {
  if ("all" in target) return "every policy";
  const { policy, partition } = target as PolicyTarget;
  return partition === undefined
    ? `policy ${policy}`
    : `partition ${keyInWords(partition)} of policy ${policy}`;
}

/** Whom a limit is for. */
export function limitedBy({
  key,
  where,
}: {
  key?: string | null | undefined;
  where?: ContextValues | null | undefined;
}): string {
  if (where) return `every partition with ${valuesOf(where)}`;
  return key === undefined || key === null ? "every key" : keyInWords(key);
}

export function valuesOf(where: ContextValues): string {
  return Object.entries(where)
    .map(([name, value]) => `${name}=${value}`)
    .join(" and ");
}

/** Of an error: behind it comes the stack. */
export function firstLine(error: string | null | undefined): string | null {
  return error?.split("\n")[0] ?? null;
}

/** What a dry run concerns. */
export function reachIn(reach: Reach & { readonly stored?: boolean }): string {
  return reach.stored ? "nothing matches yet, so it would be stored for partitions to come" : reached(reach);
}
