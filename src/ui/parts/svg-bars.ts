import { html, type Markup, none } from "./markup.ts";

const [STEP, BAR] = [4, 3];
/** One failure of many is still to be seen. */
const LEAST_WRONG = 2;

interface Drawing {
  /** The class of the picture. */
  readonly name: string;
  readonly height: number;
  /** The height of what is little, so that it is still to be seen. Default 0. */
  readonly least?: number;
  /** The same in words, for who cannot see it. */
  readonly says: string;
  /** What a browser shows at each bar, for who points at it. Default: nothing. */
  readonly tips?: readonly string[];
  /** Of each value what went wrong, as the lower part of its bar. Default: nothing. */
  readonly wrong?: readonly number[];
  /** Whether the last value still grows. Its bar is paler. */
  readonly isLastOpen?: boolean;
}

/** A bar for each value, up to the greatest. Null has none. */
export function svgBars(
  values: readonly (number | null)[],
  { name, height: full, least = 0, says, tips = [], wrong = [], isLastOpen = false }: Drawing,
): Markup {
  const most = Math.max(...values.map((value) => value ?? 0));
  const heights = values.map((value) => {
    if (value === null) return 0;
    return most > 0 ? Math.max((value / most) * full, least) : least;
  });
  const low = wrong.map((value) =>
    value > 0 && most > 0 ? Math.min(Math.max((value / most) * full, LEAST_WRONG), full) : 0,
  );
  const closed = isLastOpen ? heights.with(-1, 0) : heights;
  const open = isLastOpen ? heights.map((height, n) => (n === heights.length - 1 ? height : 0)) : [];
  // as high as the picture: nobody can point at a bar of one pixel
  const pointed = tips.map(
    (tip, n) =>
      html`<rect class="tip" x="${n * STEP}" width="${STEP}" height="${full}"><title>${tip}</title></rect>`,
  );
  return html`<svg class="${name}" viewBox="0 0 ${values.length * STEP} ${full}" preserveAspectRatio="none" role="img" aria-label="${says}">${barsOf(closed, full)}${barsOf(open, full, "open")}${barsOf(low, full, "wrong")}${pointed}</svg>`;
}

/** All of them as one path: a rectangle each would be most of a page's bytes. */
function barsOf(heights: readonly number[], full: number, name?: string): Markup {
  const path = heights
    .map((height, n) => {
      const high = Math.round(height * 10) / 10;
      return high > 0 ? `M${n * STEP} ${full}v${-high}h${BAR}v${high}z` : "";
    })
    .join("");
  return path === "" ? none : html`<path${name ? html` class="${name}"` : ""} d="${path}"></path>`;
}
