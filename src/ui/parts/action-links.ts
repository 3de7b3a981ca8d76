import { ACTIONS, ENDS } from "../pages/actions.ts";
import type { ActionName } from "../pages/form.ts";
import type { Visit } from "../pages/visit.ts";
import { pathTo } from "./links.ts";
import { html, type Markup, none } from "./markup.ts";

type Target = Readonly<Record<string, string | undefined>>;

/** Which links there are: of these verbs, behind a button that is to be seen first. Those of `more` show when somebody asks. */
export interface Actions {
  readonly target: Target;
  readonly names: readonly ActionName[];
  readonly more?: readonly ActionName[];
  readonly button?: Markup | undefined;
}

/** Links to the pages that ask before they change something. A viewer gets none. */
export function actionLinks({ base, rights }: Visit, { target, names, more = [], button }: Actions): Markup {
  if (rights.role !== "operator" || (names.length === 0 && !button)) return none;
  const links = (of: readonly ActionName[]) =>
    of.map((name) => html`<li>${actionLink(name, pathTo(base, `/act/${name}`, target))}</li>`);
  return html`<ul class="actions">${button ? html`<li>${button}</li>` : none}${links(names)}${
    more.length > 0 ? html`<li><details><summary>More</summary><ul>${links(more)}</ul></details></li>` : none
  }</ul>`;
}

/** One of them. Without other words it has its own name. */
export function actionLink(
  name: ActionName,
  path: string,
  words = ACTIONS[name].label,
  look = ENDS.has(name) ? "ends" : "",
): Markup {
  return html`<a class="${look}" href="${path}">${words}</a>`;
}
