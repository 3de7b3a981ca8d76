import { grouped, some } from "../../counted.ts";
import type { Reach } from "../../operate/targets.ts";

export { calendarInWords, grouped, some } from "../../counted.ts";

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

/** The same in a table, which has no room for the zone. */
export function atLocalTime(time: Date): string {
  return atTime(time).slice(0, 19).replace("T", " ");
}

/** Seconds by reason, the longest first, as the sentences of `explain` have them: "12 s: throttle_empty 10 s, in line 2 s". */
export function waitsInWords(
  waited: Readonly<Record<string, number>>,
  most = Number.POSITIVE_INFINITY,
): string {
  const parts = Object.entries(waited).sort(([, a], [, b]) => b - a);
  if (parts.length === 0) return "";
  const whole = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  const named = parts
    .slice(0, most)
    .map(([reason, seconds]) => `${reason.replace("in_line", "in line")} ${inWords(seconds * 1000)}`);
  return `${inWords(whole * 1000)}: ${named.join(", ")}`;
}

/** What a verb concerns: "1 partition, 3 staged jobs, 2 in flight". */
export function reached({ partitions = 0, staged = 0, inFlight = 0 }: Reach): string {
  return `${some(partitions, "partition")}, ${some(staged, "staged job")}, ${grouped(inFlight)} in flight`;
}
