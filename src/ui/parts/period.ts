import { pathTo } from "./links.ts";
import { html, type Markup } from "./markup.ts";

/** How far back charts and sums go, and in which steps. */
export interface Period {
  /** After "the last". */
  readonly words: string;
  readonly minutes: number;
  /** How many minutes are one bar. */
  readonly step: number;
  /** Such a step, in words. */
  readonly each: string;
}

export const HOUR: Period = { words: "hour", minutes: 60, step: 1, each: "a minute" };

/** By what the address says. */
const PERIODS: ReadonlyMap<string, Period> = new Map([
  ["1h", HOUR],
  ["6h", { words: "6 hours", minutes: 6 * 60, step: 5, each: "5 minutes" }],
  ["24h", { words: "24 hours", minutes: 24 * 60, step: 20, each: "20 minutes" }],
  ["7d", { words: "7 days", minutes: 7 * 24 * 60, step: 180, each: "3 hours" }],
]);

const MINUTE_MS = 60_000;

/** What the address asks for; the last hour if it does not say. */
export function periodOf(query: URLSearchParams): Period {
  return PERIODS.get(query.get("period") ?? "") ?? HOUR;
}

/** When its first step begins. Steps begin at whole multiples, as those of the SQL functions do. */
export function beginOf({ minutes, step }: Period): Date {
  const stepMs = step * MINUTE_MS;
  return new Date((Math.floor(Date.now() / stepMs) - minutes / step + 1) * stepMs);
}

/** When each of its steps begins. */
export function stepsOf(period: Period): readonly Date[] {
  const first = beginOf(period).getTime();
  return Array.from(
    { length: period.minutes / period.step },
    (_, n) => new Date(first + n * period.step * MINUTE_MS),
  );
}

/** A link to the same page for each period. */
export function periodLinks(
  base: string,
  path: string,
  query: Readonly<Record<string, string>>,
  chosen: Period,
): Markup {
  return html`<nav class="choices" aria-label="Period"><ul>${[...PERIODS].map(
    ([name, period]) =>
      html`<li><a href="${pathTo(base, path, { ...query, period: name })}"${
        period === chosen ? html` aria-current="true"` : ""
      }>${period === HOUR ? "1 hour" : period.words}</a></li>`,
  )}</ul></nav>`;
}
