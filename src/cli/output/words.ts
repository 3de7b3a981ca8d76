import { atTime, inWords } from "../../operate/words.ts";

export { calendarInWords, grouped, some } from "../../counted.ts";
export { atTime, fromNow, inWords } from "../../operate/words.ts";

/** A time in a table, which has no room for the zone. */
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
