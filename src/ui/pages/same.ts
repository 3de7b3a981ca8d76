import { argument, COMMAND, name as identifier, literal } from "../../operate/quoted.ts";
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
  const { ids, ...flags }: Flags = { ...(action.flags ? action.flags(values) : values), reason, by };
  const given: Flags = { ...flags, "policy-schema": schema === DEFAULT_SCHEMA ? undefined : schema };
  const command = [
    ...(typeof ids === "string" ? ids.split(",") : []),
    ...Object.entries(given).flatMap(([flag, value = []]) => [value].flat().map((one) => asFlag(flag, one))),
    ...(action.needsYes ? ["--yes"] : []),
  ];
  const args = { ...action.sql(values), reason: literal(reason), by: literal(by) };
  const sql = Object.entries(args)
    .filter(([, value]) => value !== undefined)
    .map(([arg, value]) => `${RESERVED.has(arg) ? `"${arg}"` : arg} => ${value}`);
  return html`<h2>The same as a command, and in SQL</h2>
<pre>${COMMAND} ${name} ${command.join(" ")}</pre>
<pre>select * from ${identifier(schema)}.${name.replace("-", "_")}(${sql.join(", ")});</pre>`;
}

function asFlag(flag: string, value: string): string {
  if (flag === "drain" && value === FLAG) return `--${flag}`;
  return `--${flag}${value.startsWith("-") ? "=" : " "}${argument(value)}`;
}
