import { keyInWords } from "../../operate/gate-words.ts";
import type { OldestDue } from "../../operate/status.ts";
import { pathTo } from "./links.ts";
import { html, type Markup } from "./markup.ts";
import { roughly } from "./words.ts";

/** One number to be seen first. */
export interface Card {
  readonly value: string;
  /** How much of what there is, as a bar. */
  readonly bar?: Markup;
  readonly name: string;
  /** What else belongs to it, smaller. */
  readonly more?: string;
  /** What is behind it. */
  readonly to?: string;
}

/** Numbers side by side, each with its name. */
export function cardList(cards: readonly Card[]): Markup {
  return html`<ul class="cards">${cards.map(
    ({ value, bar, name, more, to }) =>
      html`<li><strong>${value}</strong>${bar ?? ""}<span>${to === undefined ? name : html`<a href="${to}">${name}</a>`}</span>${
        more === undefined ? "" : html`<small>${more}</small>`
      }</li>`,
  )}</ul>`;
}

/** The job that has been due for longest: for how long, and which it is. */
export function oldestDueCard(it: OldestDue | null, base: string): Card {
  const name = "oldest due job";
  if (it === null) return { value: "–", name, more: "none is due" };
  const partition = it.partition === null ? "" : `${keyInWords(it.partition)}, `;
  return {
    value: roughly(it.ageSeconds),
    name,
    more: `${it.id} of ${partition}${it.policy}`,
    to: pathTo(base, "/job", { id: it.id }),
  };
}
