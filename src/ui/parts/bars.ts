import { html, type Markup } from "./markup.ts";
import type { Period } from "./period.ts";

const [STEP, BAR, HEIGHT] = [4, 3, 40];

/** A bar for each step of a period. What they say is in a table below them, for who cannot see it. */
export function bars(
  values: readonly (number | null)[],
  title: string,
  inWords: (value: number) => string,
  period: Period,
): Markup {
  const most = Math.max(...values.map((value) => value ?? 0));
  if (most === 0) return html`<figure><p class="empty">none</p><figcaption>${title}</figcaption></figure>`;
  const drawn = values.map((value, n) => {
    const height = ((value ?? 0) / most) * HEIGHT;
    return html`<rect x="${n * STEP}" width="${BAR}" y="${HEIGHT - height}" height="${height}"></rect>`;
  });
  const says = `${title}: at most ${inWords(most)} in ${period.each} of the last ${period.words}`;
  return html`<figure>
<svg class="bars" viewBox="0 0 ${values.length * STEP} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${says}">${drawn}</svg>
<figcaption>${title} <span class="quiet">at most ${inWords(most)}</span></figcaption>
</figure>`;
}
