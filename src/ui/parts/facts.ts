import { html, type Markup } from "./markup.ts";

/** A term and what it is. Null or undefined: nothing is known, and the term is left out. */
export type Fact = readonly [term: string, value: Markup | string | number | null | undefined];

/** What is known of one thing, a line for each fact. */
export function factList(facts: readonly Fact[]): Markup {
  return html`<dl class="facts">${facts
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([term, value]) => html`<dt>${term}</dt><dd>${value as string}</dd>`)}</dl>`;
}
