import { html, type Markup } from "./markup.ts";

/** A number of one thing, with what else belongs to it. */
export type Part = readonly [term: string, value: Markup | string, more?: Markup | string | undefined];

/** The numbers of one thing in a row, to be seen before all else. */
export function strip(parts: readonly Part[]): Markup {
  return html`<dl class="strip">${parts.map(
    ([term, value, more]) =>
      html`<div><dt>${term}</dt><dd>${value}${more === undefined ? "" : html`<small>${more}</small>`}</dd></div>`,
  )}</dl>`;
}
