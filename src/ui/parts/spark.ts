import { html, type Markup } from "./markup.ts";

const [STEP, BAR, HEIGHT] = [4, 3, 20];
/** What is little is still to be seen. */
const LEAST = 1;

/** Bars within a line of a table, one a step. `says` tells the same to who cannot see them. */
export function spark(values: readonly (number | null)[], says: string): Markup {
  const most = Math.max(...values.map((value) => value ?? 0));
  const drawn = values.map((value, n) => {
    if (value === null) return "";
    const height = most > 0 ? Math.max((value / most) * HEIGHT, LEAST) : LEAST;
    return html`<rect x="${n * STEP}" width="${BAR}" y="${HEIGHT - height}" height="${height}"></rect>`;
  });
  return html`<svg class="spark" viewBox="0 0 ${values.length * STEP} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${says}">${drawn}</svg>`;
}
