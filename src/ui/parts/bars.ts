import { html, type Markup } from "./markup.ts";
import type { Period } from "./period.ts";
import { svgBars } from "./svg-bars.ts";

/** A bar for each step of a period. What they say is in a table below them, for who cannot see it. */
export function bars(
  values: readonly (number | null)[],
  title: string,
  inWords: (value: number) => string,
  period: Period,
): Markup {
  const most = Math.max(...values.map((value) => value ?? 0));
  if (most === 0) return html`<figure><p class="empty">none</p><figcaption>${title}</figcaption></figure>`;
  const says = `${title}: at most ${inWords(most)} in ${period.each} of the last ${period.words}`;
  return html`<figure>
${svgBars(
  values.map((value) => value ?? 0),
  { name: "bars", height: 40, says },
)}
<figcaption>${title} <span class="quiet">at most ${inWords(most)}</span></figcaption>
</figure>`;
}
