import { some } from "../../counted.ts";
import { argument, COMMAND, name as identifier, literal } from "../../operate/quoted.ts";
import type { Changed } from "../../operate/targets.ts";
import { DEFAULT_SCHEMA } from "../../settings.ts";
import { pathTo } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped } from "../parts/words.ts";
import { ACTIONS } from "./actions.ts";
import {
  type Action,
  type ActionName,
  type Counted,
  type Field,
  FLAG,
  type Flags,
  type Known,
  type Values,
} from "./form.ts";
import type { Change } from "./limit-changes.ts";
import type { Found, Page, Sent, Visit } from "./visit.ts";

/** The pages that ask before a verb is run. */
export const ACTION_PAGES: Readonly<Record<string, Page>> = Object.fromEntries(
  Object.entries(ACTIONS).map(([name, action]) => [
    `/act/${name}`,
    (visit: Visit) => askFirst(visit, name as ActionName, action),
  ]),
);

/** Runs a verb with what the form says, under the sender's name. */
export function actOn(name: string): (sent: Sent) => Promise<Found> {
  const action = ACTIONS[name as ActionName];
  return async (sent) => {
    if (!action) return null;
    const { acting, form, by, base } = sent;
    const values = valuesOf(form, action);
    if (form.has("replay")) {
      const { replay } = action;
      const found = replay ? await sent.replays.run(() => replay(acting, values)) : undefined;
      return askFirst({ ...sent, query: form }, name as ActionName, action, { found });
    }
    const reason = form.get("reason")?.trim();
    if (!reason)
      return askFirst({ ...sent, query: form }, name as ActionName, action, {
        wrong: "Say why: the audit keeps it.",
      });
    const result = await action.run(acting, { ...values, reason, by });
    const back = backTo(base, values);
    return {
      title: `${name}: done`,
      body: html`<p class="${result.changed > 0 ? "good" : ""}">${inWords(result)}</p>
${undo(base, action, values)}
<p><a href="${back}">Back</a></p>
${same(name as ActionName, { values, reason, by, schema: acting.engine.schemaName })}`,
    };
  };
}

/** What the page says beside the form: what is missing in it, or what a replay has found. */
interface Said {
  readonly wrong?: string;
  readonly found?: Markup | undefined;
}

async function askFirst(visit: Visit, name: ActionName, action: Action, { wrong, found }: Said = {}) {
  const { base, query, looking, acting, rights } = visit;
  if (rights.role !== "operator") return { title: name, body: html`<p>A viewer changes nothing.</p>` };
  const values = valuesOf(query, action);
  const target = action.target.filter((field) => values[field] !== undefined);
  const known = (await action.know?.(looking, values)) ?? {};
  const count = await action.count?.(acting, values, known);
  const changes = await action.changes?.(looking, values, known);
  return {
    title: name,
    body: html`<p>${action.about}</p>
<dl class="facts">${target.map((field) => html`<dt>${field}</dt><dd>${values[field] ?? ""}</dd>`)}</dl>
${count ? html`<p>${countInWords(count)}</p>` : ""}
${changes ? changeTable(changes) : ""}
${wrong ? html`<p class="bad" role="alert">${wrong}</p>` : ""}
${found ?? ""}
<form class="act" method="post" action="${base}/act/${name}">
${target.map((field) => html`<input type="hidden" name="${field}" value="${values[field] ?? ""}">`)}
${fieldsFor(action, values, known).map((field) => fieldInput(field, values[field.name], known))}
<label>Reason, for the audit <input name="reason" value="${query.get("reason") ?? ""}" required></label>
<p><button>${name}</button>${action.fields.some(({ isFilter }) => isFilter) ? html` <button formmethod="get" formnovalidate>count again</button>` : ""}${action.changes && action.fields.length > 0 ? SHOW_CHANGES : ""}${action.isRecorded?.(known) ? REPLAY : ""}</p>
</form>
<p><a href="${backTo(base, values)}">Leave it</a></p>`,
  };
}

/** Of the gate that was chosen, or else of all. What was given stays, so that the verb can say what is wrong with it. */
function fieldsFor({ fields }: Action, values: Values, { definition }: Known): readonly Field[] {
  const gates = definition?.gates ?? [];
  const chosen = gates.filter(({ name }) => name === values.gate);
  const possible = chosen.length > 0 ? chosen : gates;
  return fields.filter(({ name, isFor }) => !isFor || values[name] !== undefined || possible.some(isFor));
}

const SHOW_CHANGES = html` <button formmethod="get" formnovalidate>show what changes</button>`;

function changeTable(changes: readonly Change[]): Markup {
  return table(
    "What changes",
    changes,
    [
      { title: "Number", cell: ({ number }) => number },
      { title: "Now", isNumber: true, cell: ({ now }) => now },
      { title: "Then", isNumber: true, cell: ({ then }) => then },
    ],
    "The gate has no numbers.",
  );
}

/** It sends the form, so that no other site can start a replay. */
const REPLAY = html` <button name="replay" value="1" formnovalidate>what would have happened?</button> <small>A replay of the recorded load. It takes some seconds, and changes nothing.</small>`;

/** A field of the form. What was given stays, also if it is none of the choices: then the verb says what is wrong. */
export function fieldInput(field: Field, given: string | undefined, known: Known = {}): Markup {
  const { name, label, isRequired, hint } = field;
  const choices = field.choices?.(known);
  const what = html`${label}${hint ? html` <small>${hint}</small>` : ""}`;
  const required = isRequired ? html` required` : "";
  if (!choices || (given !== undefined && !choices.some(({ value }) => value === given)))
    return html`<label>${what} <input name="${name}" value="${given ?? ""}"${required}></label>`;
  const options = choices.map(
    ({ value, says }) =>
      html`<option value="${value}"${value === given ? html` selected` : ""}>${says}</option>`,
  );
  return html`<label>${what} <select name="${name}"${required}><option value=""></option>${options}</select></label>`;
}

function countInWords({ matched, stored, partitions, staged = 0, inFlight = 0 }: Counted): Markup {
  if (partitions === undefined)
    return html`<strong>${grouped(matched)}</strong> ${matched === 1 ? "job matches" : "jobs match"} now.`;
  if (stored) return html`Nothing matches now: it is stored for partitions to come.`;
  return html`It concerns <strong>${some(partitions, "partition")}</strong>, with ${some(staged, "staged job")} and ${grouped(inFlight)} in flight.`;
}

/** A target may have the empty text as its key. A field that is empty was not filled in. */
function valuesOf(given: URLSearchParams, { target, fields }: Action): Values {
  const own = target.map((name) => [name, given.get(name) ?? undefined]);
  const filled = fields.map(({ name }) => [name, given.get(name) || undefined]);
  return Object.fromEntries([...own, ...filled]);
}

function backTo(base: string, { policy, partition, ids }: Values): string {
  if (ids !== undefined) return ids.includes(",") ? `${base}/jobs` : pathTo(base, "/job", { id: ids });
  if (partition !== undefined) return pathTo(base, "/partition", { policy, partition });
  return policy === undefined ? `${base}/` : pathTo(base, "/policy", { policy });
}

function inWords({ matched, changed }: Changed & { stored?: boolean }): string {
  if (matched === 0)
    return "Nothing matched. If it acts on what is still to come, it is kept, and waits for that.";
  return `${grouped(changed)} of ${grouped(matched)} changed.`;
}

function undo(base: string, { inverse, target }: Action, values: Values): Markup {
  if (!inverse) return html``;
  const kept = [...target, "gate", "key", "where"].map((field) => [field, values[field]]);
  return html`<p><a href="${pathTo(base, `/act/${inverse}`, Object.fromEntries(kept))}">Undo: ${inverse}</a></p>`;
}

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
  return html`<h2>The same in words</h2>
<pre>${COMMAND} ${name} ${command.join(" ")}</pre>
<pre>select * from ${identifier(schema)}.${name.replace("-", "_")}(${sql.join(", ")});</pre>`;
}

function asFlag(flag: string, value: string): string {
  if (flag === "drain" && value === FLAG) return `--${flag}`;
  return `--${flag}${value.startsWith("-") ? "=" : " "}${argument(value)}`;
}
