import type { Markup } from "./markup.ts";
import { svgBars } from "./svg-bars.ts";

/** Bars within a line of a table, one a step. `says` tells the same to who cannot see them. */
export function spark(values: readonly (number | null)[], says: string): Markup {
  return svgBars(values, { name: "spark", height: 20, least: 1, says });
}
