import { html, type Markup } from "./markup.ts";

/** A list in the page takes room, and nobody reads so many. */
const MOST = 200;

/**
 * A field of a filter that completes these names: of policies or of tasks, which are few. It takes any other as well, because there
 * may be jobs of what is no more.
 */
export function named(
  name: string,
  label: string,
  names: readonly string[],
  given: string | undefined,
): Markup {
  const options = names.slice(0, MOST).map((one) => html`<option value="${one}"></option>`);
  return html`<label>${label} <input name="${name}" value="${given ?? ""}" list="names-of-${name}"></label><datalist id="names-of-${name}">${options}</datalist>`;
}
