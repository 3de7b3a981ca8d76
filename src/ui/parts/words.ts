import { grouped as withThousandsApart } from "../../counted.ts";
import { html, type Markup } from "./markup.ts";

const UNITS = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
] as const;

/** A length of time by its two largest units: "3 h 5 min". Less than a second: "0.25 s". */
export function lasting(seconds: number): string {
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const [first, at] = UNITS.map(([unit, size], n) => [[unit, size], n] as const).find(
    ([[, size]]) => seconds >= size,
  ) ?? [UNITS[3], 3];
  const [unit, size] = first;
  const rest = UNITS[at + 1];
  const left = rest ? Math.floor((seconds % size) / rest[1]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest && left > 0 ? ` ${left} ${rest[0]}` : ""}`;
}

/** An age, to the minute. A page that told seconds would never be the same twice, and each refresh would send it anew. */
export function roughly(seconds: number): string {
  return seconds < 60 ? "under a minute" : lasting(seconds - (seconds % 60));
}

/** A number with its thousands apart, or a dash. */
export function grouped(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : withThousandsApart(value);
}

/** How many a minute, as exact as anybody means it. */
export function aMinute(rate: number): string {
  return grouped(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate));
}

/** A moment, to the second in UTC, for people and for machines; a dash for none. One that is `exact` is not told from now on. */
export function moment(at: Date | null | undefined, exact = false): Markup {
  if (!at) return html`–`;
  if (!Number.isFinite(at.getTime())) return html`never`;
  const iso = at.toISOString();
  return html`<time datetime="${iso}"${exact ? html` class="exact"` : ""}>${iso.slice(0, 10)} ${iso.slice(11, 19)}</time>`;
}

const ISO = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/;

/** A sentence of the database, with its moments as those of the pages. */
export function sentence(text: string): Markup {
  // with the group each other part is a moment
  return html`${text.split(ISO).map((part, n) => (n % 2 === 1 ? moment(new Date(part)) : part))}`;
}
