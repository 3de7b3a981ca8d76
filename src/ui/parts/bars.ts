import { html, type Markup } from "./markup.ts";
import { type Period, stepsOf } from "./period.ts";
import { svgBars } from "./svg-bars.ts";

interface Chart {
  readonly title: string;
  readonly inWords: (value: number) => string;
  readonly period: Period;
  /** Of each value what went wrong. */
  readonly wrong?: readonly number[];
  /** Whether the last step still goes on, so that its bar may grow. */
  readonly isLastOpen?: boolean;
}

/** A bar for each step of a period. What they say is in a table below them, for who cannot see it. */
export function bars(
  values: readonly (number | null)[],
  { title, inWords, period, wrong, isLastOpen = false }: Chart,
): Markup {
  const most = Math.max(...values.map((value) => value ?? 0));
  if (most === 0) return html`<figure><figcaption>${title}</figcaption><p class="empty">none</p></figure>`;
  const atMost = `at most ${inWords(most)}${wrong ? `, failed at most ${inWords(Math.max(...wrong))}` : ""}`;
  const says = `${title}: ${atMost} in ${period.each} of the last ${period.words}`;
  const times = stepsOf(period).map((at) => timeOf(at, period));
  const tips = values.map(
    (value, n) =>
      `${times[n] ?? "now"}: ${value === null ? "–" : inWords(value)}${wrong ? `, ${inWords(wrong[n] ?? 0)} failed` : ""}`,
  );
  return html`<figure>
<figcaption>${title} <span class="quiet">${atMost}</span></figcaption>
${svgBars(
  values.map((value) => value ?? 0),
  { name: "bars", height: 40, says, tips, isLastOpen, ...(wrong && { wrong }) },
)}
<p class="axis" aria-hidden="true"><span>${times[0]}</span><span>${times[Math.floor(times.length / 2)]}</span><span>now</span></p>
</figure>`;
}

/** Within a day the time of day says when a step begins. */
function timeOf(at: Date, { minutes }: Period): string {
  const iso = at.toISOString();
  return minutes > 24 * 60 ? `${iso.slice(5, 10)} ${iso.slice(11, 16)}` : iso.slice(11, 16);
}
