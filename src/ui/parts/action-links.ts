import { ENDS } from "../pages/actions.ts";
import type { ActionName } from "../pages/form.ts";
import type { Visit } from "../pages/visit.ts";
import { pathTo } from "./links.ts";
import { html, type Markup, none } from "./markup.ts";

/** Links to the pages that ask before they change something. A viewer gets none. */
export function actionLinks(
  { base, rights }: Visit,
  target: Readonly<Record<string, string | undefined>>,
  names: readonly ActionName[],
): Markup {
  if (rights.role !== "operator" || names.length === 0) return none;
  return html`<ul class="actions">${names.map(
    (name) => html`<li>${actionLink(name, pathTo(base, `/act/${name}`, target), name)}</li>`,
  )}</ul>`;
}

/** One of them, in these words. */
export function actionLink(name: ActionName, path: string, words: string): Markup {
  return html`<a class="${ENDS.has(name) ? "ends" : ""}" href="${path}">${words}</a>`;
}
