import { html, type Markup } from "./markup.ts";

/** A field of a filter with what there is to choose from. `none` says what it means to choose nothing. */
export function choice(
  name: string,
  label: string,
  choices: readonly string[],
  chosen: string | undefined,
  none = "any",
): Markup {
  return html`<label>${label} <select name="${name}"><option value="">${none}</option>${choices.map(
    (one) => html`<option${one === chosen ? html` selected` : ""}>${one}</option>`,
  )}</select></label>`;
}
