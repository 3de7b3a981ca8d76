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

/** What a form sends beside what somebody fills in, as far as it has a value. */
export function hidden(
  values: Readonly<Record<string, string | number | null | undefined>>,
): readonly Markup[] {
  return Object.entries(values)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => html`<input type="hidden" name="${name}" value="${String(value)}">`);
}
