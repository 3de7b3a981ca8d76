import { some } from "../../counted.ts";
import { ArgumentError } from "../../errors.ts";
import { keyInWords } from "../../operate/gate-words.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { jobLink, partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped } from "../parts/words.ts";
import { isSendersError, orSendersError } from "../senders-error.ts";
import { ACTIONS, ENDS, whenInWords } from "./actions.ts";
import {
  type Action,
  type ActionName,
  type Choice,
  type Counted,
  type Field,
  type Known,
  keyAsWritten,
  keyIn,
  titleOf,
  type Values,
} from "./form.ts";
import type { Change } from "./limit-changes.ts";
import { callingFor, newToken, recordedBy, tokenIn, unlessSentTwice, whyNot } from "./one-time.ts";
import type { Act, Found, Page, Sent, Visit } from "./visit.ts";

/** How many of what it acts on a form names. Of the others it has the number. */
const MOST_NAMED = 5;

/** The pages that ask before a verb is run. */
export const ACTION_PAGES: Readonly<Record<string, Page>> = Object.fromEntries(
  Object.entries(ACTIONS).map(([name, action]) => [
    `/act/${name}`,
    (visit: Visit) => askFirst(visit, name as ActionName, action),
  ]),
);

/** What sending their forms does: it runs the verb with what the form says, under the sender's name. */
export const ACTS: Readonly<Record<string, Act>> = Object.fromEntries(
  Object.entries(ACTIONS).map(([name, action]) => [
    `/act/${name}`,
    (sent: Sent) => actOn(sent, name as ActionName, action),
  ]),
);

async function actOn(sent: Sent, name: ActionName, action: Action): Promise<Found> {
  const { acting, looking, form, by, base } = sent;
  const values = valuesOf(form, action);
  const again = (said: Said) => askFirst({ ...sent, query: form }, name, action, said);
  if (form.has("replay")) {
    const { replay } = action;
    return again({ found: replay ? await sent.replays.run(() => replay(acting, values)) : undefined });
  }
  const token = tokenIn(form.get("form"));
  const done = token && { seeOther: pageAfter(base, name, values, token.text) };
  if (token && (await recordedBy(looking, token)).length > 0) return done ?? null;
  const reason = form.get("reason")?.trim();
  if (!reason) return again({ wrong: "Say why: the audit keeps it." });
  const run = async () => {
    const stale = await whyNot(looking, token, values, Object.keys(ACTIONS));
    if (stale || !token) return stale;
    await action.run(callingFor(acting, token), { ...values, reason, by }).catch(unlessSentTwice);
    return undefined;
  };
  const wrong = await orSendersError(run);
  if (wrong instanceof Error) return { status: 400, ...(await again({ wrong: wrong.message })) };
  return wrong ? { status: 409, ...(await again({ wrong })) } : (done ?? null);
}

/** The page of what a form is about, which says what the form has done. A job that has ended may have none. */
export function pageAfter(
  base: string,
  name: ActionName,
  { policy, partition, ids }: Values,
  did: string,
): string {
  if (ids !== undefined)
    return ENDS.has(name) || ids.includes(",")
      ? pathTo(base, "/jobs", { did })
      : pathTo(base, "/job", { id: ids, did });
  if (partition !== undefined) return pathTo(base, "/partition", { policy, partition, did });
  return pathTo(base, "/policy", { policy, did });
}

/** What the page says beside the form: what is missing in it, or what a replay has found. */
interface Said {
  readonly wrong?: string | Markup;
  readonly found?: Markup | undefined;
}

async function askFirst(visit: Visit, name: ActionName, action: Action, said: Said = {}) {
  const { base, query, looking, rights } = visit;
  const title = titleOf(action);
  if (rights.role !== "operator") return { title, body: FOR_OPERATORS };
  const given = valuesOf(query, action);
  const target = action.target.filter((field) => given[field] !== undefined);
  const known = (await action.know?.(looking, given)) ?? {};
  const { values, count, changes, wrong = said.wrong } = await readFirst(visit, action, given, known);
  return {
    title,
    body: html`<p>${action.about}</p>
${factList(target.map((field) => factOf(base, field, values)))}
${count ? html`<p>${countInWords(count)}</p>` : ""}
${changes ? changeTable(changes) : ""}
${wrong ? alert(wrong) : ""}
${said.found ?? ""}
<form class="act" method="post" action="${base}/act/${name}">
<input type="hidden" name="form" value="${await newToken(looking)}">
${target.map((field) => html`<input type="hidden" name="${field}" value="${values[field] ?? ""}">`)}
${fieldsFor(action, values, known).map((field) => fieldInput(field, values[field.name], known))}
<label>Reason, for the audit <input name="reason" value="${query.get("reason") ?? ""}" required></label>
<p>${submit(name)}${action.fields.some(({ isFilter }) => isFilter) ? html` <button formmethod="get" formnovalidate>count again</button>` : ""}${action.changes && action.fields.length > 0 ? SHOW_CHANGES : ""}${action.isRecorded?.(known) ? REPLAY : ""}</p>
</form>
<p><a href="${backTo(base, values)}">Leave it</a></p>`,
  };
}

/** What a viewer gets in place of a form. */
export const FOR_OPERATORS = html`<p>A viewer changes nothing. Send the address of this page to an operator.</p>`;

/** What is wrong with a form. The focus begins here, so that the next Tab leads to the fields. */
export function alert(wrong: string | Markup): Markup {
  return html`<p class="bad" role="alert" tabindex="-1" autofocus>${wrong}</p>`;
}

/** The button that does it. */
export function submit(name: ActionName): Markup {
  return html`<button${ENDS.has(name) ? html` class="ends"` : ""}>${titleOf(ACTIONS[name])}</button>`;
}

interface Read {
  /** With what the form begins with. */
  readonly values: Values;
  readonly count?: Counted | undefined;
  readonly changes?: readonly Change[] | undefined;
  readonly wrong?: string;
}

/** What the page says before it asks. With a wrong value in a field it says so, and counts as if the fields were empty. */
async function readFirst(visit: Visit, action: Action, values: Values, known: Known): Promise<Read> {
  const { looking, acting } = visit;
  const read = async (given: Values) => {
    const filled = { ...given, ...(await action.filled?.(looking, given, known)) };
    return {
      values: filled,
      count: await action.count?.(acting, filled, known),
      changes: await action.changes?.(looking, filled, known),
    };
  };
  const given = action.fields.filter(({ name }) => values[name] !== undefined);
  return read(values).catch(async (error) => {
    if (given.length === 0 || !isSendersError(error)) throw error;
    const empty = Object.fromEntries(given.map(({ name }) => [name, undefined]));
    return { ...(await read({ ...values, ...empty })), values, wrong: error.message };
  });
}

/** A line of what the form acts on, with the page that says more of it. */
function factOf(base: string, field: string, values: Values): Fact {
  const { policy, [field]: value = "" } = values;
  if (field === "ids") return jobsFact(base, value.split(","));
  if (field === "policy") return [field, policyLink(base, value)];
  if (field === "partition" && policy !== undefined) return [field, partitionLink(base, policy, value)];
  return [field, field === "key" ? keyInWords(value) : value];
}

function jobsFact(base: string, ids: readonly string[]): Fact {
  return [ids.length === 1 ? "job" : "jobs", firstOf(ids, (id) => jobLink(base, id))];
}

/** The first of what a form acts on, and how many more there are. */
export function firstOf<T>(all: readonly T[], link: (one: T) => Markup): Markup {
  const named = all.slice(0, MOST_NAMED).map((one, n) => html`${n > 0 ? ", " : ""}${link(one)}`);
  const others = all.length - named.length;
  return html`${named}${others > 0 ? ` and ${grouped(others)} more` : ""}`;
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
export function fieldInput(field: Field, value: string | undefined, known: Known = {}): Markup {
  const { name, label, isRequired, isKey, hint, chips } = field;
  if (chips) return chipsAndField(field, chips, value ?? "");
  const given = isKey ? keyAsWritten(value) : value;
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

/** Of the chips and the field one counts. So a value that is none of the chips gets one, and only what is wrong stands in the field. */
function chipsAndField({ name, label, hint }: Field, chips: readonly Choice[], given: string): Markup {
  const isChip = chips.some(({ value }) => value === given);
  const words = isChip || given === "" ? undefined : whenInWords(given);
  const all = words === undefined ? chips : [{ value: given, says: words }, ...chips];
  return html`<fieldset class="chips"><legend>${label}</legend>${all.map(
    ({ value, says }) =>
      html`<label>${says} <input type="radio" name="${name}" value="${value}"${value === given ? html` checked` : ""}></label>`,
  )}<label>Another length <small>${hint}</small> <input name="${name}" value="${isChip || words !== undefined ? "" : given}"></label></fieldset>`;
}

/** What it concerns. */
export function countInWords({ matched, stored, partitions, staged = 0, inFlight = 0 }: Counted): Markup {
  if (partitions === undefined && matched === 0) return html`<strong>No job</strong> matches now.`;
  if (partitions === undefined)
    return html`<strong>${grouped(matched)}</strong> ${matched === 1 ? "job matches" : "jobs match"} now.`;
  if (stored) return html`Nothing matches now: it is stored for partitions to come.`;
  return html`It concerns <strong>${some(partitions, "partition")}</strong>, with ${some(staged, "staged job")} and ${grouped(inFlight)} in flight.`;
}

/** A target may have the empty text as its key, and an address says it so. Ids may come one by one, from what somebody has ticked. */
function valuesOf(given: URLSearchParams, { target, fields }: Action): Values {
  const own = target.map((name) => [name, name === "ids" ? idsIn(given) : (given.get(name) ?? undefined)]);
  return { ...Object.fromEntries(own), ...fieldsIn(given, fields) };
}

/** What somebody has filled in. A field with chips has a text beside them: two that differ are no value. */
export function fieldsIn(given: URLSearchParams, fields: readonly Field[]): Values {
  return Object.fromEntries(
    fields.map(({ name, isKey }) => [
      name,
      isKey
        ? keyIn(given.get(name))
        : [...new Set(given.getAll(name))].filter(Boolean).join(" or ") || undefined,
    ]),
  );
}

/** @throws {ArgumentError} if nothing was ticked */
function idsIn(given: URLSearchParams): string | undefined {
  if (!given.has("ids")) return undefined;
  const ids = given.getAll("ids").filter(Boolean);
  if (ids.length === 0)
    throw new ArgumentError(
      "ids is empty, expected at least one job: go back, and tick the jobs that you mean",
    );
  return ids.join(",");
}

function backTo(base: string, { policy, partition, ids }: Values): string {
  if (ids !== undefined) return ids.includes(",") ? `${base}/jobs` : pathTo(base, "/job", { id: ids });
  if (partition !== undefined) return pathTo(base, "/partition", { policy, partition });
  return policy === undefined ? `${base}/` : pathTo(base, "/policy", { policy });
}
