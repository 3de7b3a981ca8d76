import { commandOfMend, type Mend } from "../../operate/mend.ts";
import { columnsOf } from "../../operate/verbs/limits.ts";
import { kebabCase } from "../../operate/verbs.ts";
import { ACTIONS } from "../pages/actions.ts";
import { type ActionName, keyAsWritten, type Values } from "../pages/form.ts";
import { textsOf } from "../pages/limit-actions.ts";
import type { Visit } from "../pages/visit.ts";
import { actionLink } from "./action-links.ts";
import { pathTo } from "./links.ts";
import { html, type Markup, none } from "./markup.ts";

/** What lets something go that waits. */
export interface Mending {
  readonly words: Markup;
  /** For an operator: the button to the form that does it, and its verb. */
  readonly button?: Markup;
  readonly verb?: ActionName;
}

/** In words, and where a form does it for who may. What has no form is a command to copy. */
export function mendingOf({ mend, asOf }: { mend: Mend | null; asOf: Date }, visit: Visit): Mending {
  if (mend === null) return { words: none };
  const { base, rights, looking } = visit;
  const { words, verb } = mend;
  if (verb === null) return { words: html`<p>${words}.</p>` };
  if (rights.role !== "operator") return { words: html`<p>${words}, ask an operator.</p>` };
  const name = kebabCase(verb) as ActionName;
  if (!Object.hasOwn(ACTIONS, name))
    return {
      words: html`<p>${words}:</p>
<pre>${commandOfMend(mend, asOf, looking.engine.schemaName)}</pre>`,
    };
  const path = pathTo(base, `/act/${name}`, valuesOf(mend));
  return { words: html`<p>${words}:</p>`, button: actionLink(name, path, undefined, "primary"), verb: name };
}

/** As the fields of its form have it. */
function valuesOf(mend: Mend & { verb: string }): Values {
  switch (mend.verb) {
    case "setLimit": {
      const { set, key, where: _, until: __, ...rest } = mend.options;
      return { ...rest, key: keyAsWritten(key), ...textsOf(columnsOf("set-limit", set)), for: "1 hour" };
    }
    case "clearLimit": {
      const { where, ...rest } = mend.options;
      return { ...rest, where: where && JSON.stringify(where) };
    }
    case "retry":
    case "cancel":
      if (!("ids" in mend.options)) return mend.options;
      return { ids: mend.options.ids.join(",") };
    case "admit":
      return { ...mend.options, count: String(mend.options.count) };
    case "resume":
      return mend.options;
    default:
      return {};
  }
}
