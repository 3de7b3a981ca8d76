import { html, type Markup } from "./markup.ts";

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
  const drawn = values.map((value, n) => {
    if (value === null) return "";
    const height = most > 0 ? Math.max((value / most) * full, least) : least;
    const open = isLastOpen && n === values.length - 1 ? html` class="open"` : "";
    return html`<rect${open} x="${n * STEP}" width="${BAR}" y="${full - height}" height="${height}"></rect>`;
  });
  const failed = wrong.map((value, n) => {
    if (value === 0 || most === 0) return "";
    const height = Math.min(Math.max((value / most) * full, LEAST_WRONG), full);
    return html`<rect class="wrong" x="${n * STEP}" width="${BAR}" y="${full - height}" height="${height}"></rect>`;
  });
  // as high as the picture: nobody can point at a bar of one pixel
  const pointed = tips.map(
    (tip, n) =>
      html`<rect class="tip" x="${n * STEP}" width="${STEP}" height="${full}"><title>${tip}</title></rect>`,
  );
  return html`<svg class="${name}" viewBox="0 0 ${values.length * STEP} ${full}" preserveAspectRatio="none" role="img" aria-label="${says}">${drawn}${failed}${pointed}</svg>`;
}
