import { html, type Markup } from "./markup.ts";

const [STEP, BAR] = [4, 3];

interface Drawing {
  /** The class of the picture. */
  readonly name: string;
  readonly height: number;
  /** The height of what is little, so that it is still to be seen. Default 0. */
  readonly least?: number;
  /** The same in words, for who cannot see it. */
  readonly says: string;
}

/** A bar for each value, up to the greatest. Null has none. */
export function svgBars(
  values: readonly (number | null)[],
  { name, height: full, least = 0, says }: Drawing,
): Markup {
  const most = Math.max(...values.map((value) => value ?? 0));
  const drawn = values.map((value, n) => {
    if (value === null) return "";
    const height = most > 0 ? Math.max((value / most) * full, least) : least;
    return html`<rect x="${n * STEP}" width="${BAR}" y="${full - height}" height="${height}"></rect>`;
  });
  return html`<svg class="${name}" viewBox="0 0 ${values.length * STEP} ${full}" preserveAspectRatio="none" role="img" aria-label="${says}">${drawn}</svg>`;
}
