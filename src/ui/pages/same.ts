import { commandLine, name as identifier, literal } from "../../operate/quoted.ts";
import { DEFAULT_SCHEMA } from "../../settings.ts";
import { html, type Markup } from "../parts/markup.ts";
import { ACTIONS } from "./actions.ts";
import { type ActionName, FLAG, type Flags, type Values } from "./form.ts";

interface Act {
  readonly values: Values;
  readonly reason: string;
  readonly by: string;
  /** This package's schema. */
  readonly schema: string;
}

/** Arguments whose names are words of SQL. */
const RESERVED: ReadonlySet<string> = new Set(["for", "from", "set", "where"]);

/** The same as a command and as SQL, to copy. */
export function same(name: ActionName, { values, reason, by, schema }: Act): Markup {
  const action = ACTIONS[name];
  const { ids, ...flags }: Flags = action.flags ? action.flags(values) : values;
  const command = commandLine(name, typeof ids === "string" ? ids.split(",") : [], {
    ...flags,
    ...(flags.drain === FLAG && { drain: true }),
    ...{ reason, by, "policy-schema": schema === DEFAULT_SCHEMA ? undefined : schema },
    ...(action.needsYes && { yes: true }),
  });
  const args = { ...action.sql(values), reason: literal(reason), by: literal(by) };
  const sql = Object.entries(args)
    .filter(([, value]) => value !== undefined)
    .map(([arg, value]) => `${RESERVED.has(arg) ? `"${arg}"` : arg} => ${value}`);
  return html`<details><summary>The same as a command, and in SQL</summary>
<pre>${command}</pre>
<pre>select * from ${identifier(schema)}.${name.replace("-", "_")}(${sql.join(", ")});</pre></details>`;
}
