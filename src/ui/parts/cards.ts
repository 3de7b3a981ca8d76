import { html, type Markup } from "./markup.ts";

/** One number to be seen first. */
export interface Card {
  readonly value: string;
  readonly name: string;
  /** What else belongs to it, smaller. */
  readonly more?: string;
  /** What is behind it. */
  readonly to?: string;
}

/** Numbers side by side, each with its name. */
export function cardList(cards: readonly Card[]): Markup {
  return html`<ul class="cards">${cards.map(
    ({ value, name, more, to }) =>
      html`<li><strong>${value}</strong><span>${to === undefined ? name : html`<a href="${to}">${name}</a>`}</span>${
        more === undefined ? "" : html`<small>${more}</small>`
      }</li>`,
  )}</ul>`;
}
