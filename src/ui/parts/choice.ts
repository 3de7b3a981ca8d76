import { html, type Markup } from "./markup.ts";

/** A field of a filter with what there is to choose from, in `words`. `none` says what it means to choose nothing. */
export function choice(
  name: string,
  label: string,
  choices: readonly string[],
  chosen: string | undefined,
  none = "any",
  words: (choice: string) => string = (one) => one,
): Markup {
  return html`<label>${label} <select name="${name}"><option value="">${none}</option>${choices.map(
    (one) => html`<option value="${one}"${one === chosen ? html` selected` : ""}>${words(one)}</option>`,
  )}</select></label>`;
}
