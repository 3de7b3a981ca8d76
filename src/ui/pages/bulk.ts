import { some } from "../../counted.ts";
import { ArgumentError } from "../../errors.ts";
import type { OperateContext } from "../../operate/call.ts";
import { keyInWords } from "../../operate/gate-words.ts";
import type { Changed } from "../../operate/targets.ts";
import type { AnyVerb, Bulk as BulkVerb } from "../../operate/verb.ts";
import { kebabCase, ROWS, runVerb } from "../../operate/verbs.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { pathTo } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { grouped } from "../parts/words.ts";
import { orSendersError } from "../senders-error.ts";
import { alert, FOR_OPERATORS, fieldInput, submit } from "./action.ts";
import { ACTIONS, sayWhatIsMissed } from "./actions.ts";
import { asWritten, type Field, keyIn } from "./form.ts";
import {
  countJobs,
  FILTERS,
  type Filter,
  type FoundJob,
  filterOf,
  jobsOf,
  type Place,
  placeOf,
} from "./job-filter.ts";
import { same } from "./same.ts";
import { asked, type Found, type Page, type Sent, type Visit } from "./visit.ts";

/** How many jobs one request takes: somebody waits for its page. */
const STEP = 500;
const MOST_COUNTED = 10_000;

export type BulkName = "retry" | "remove" | "cancel" | "move";

/** A verb that takes all jobs that a filter of the page of jobs matches. */
interface Bulk extends BulkVerb {
  readonly fields: readonly Field[];
  readonly run: (acting: OperateContext, ids: readonly string[], asks: Asks) => Promise<Changed>;
}

/** What the form says. */
interface Asks {
  readonly filter: Filter;
  readonly values: Readonly<Record<string, string | undefined>>;
  /** When the jobs were counted. */
  readonly asOf: Date;
  readonly reason: string;
  readonly by: string;
}

function bulkOf(name: BulkName, verb: AnyVerb, bulk: BulkVerb): Bulk {
  return {
    ...bulk,
    fields: ACTIONS[name].fields.filter(({ isFilter }) => !isFilter),
    run: async (acting, ids, { filter, values, asOf, reason, by }) => {
      const where = bulk.needs.includes("partition") && {
        policy: filter.policy,
        partition: filter.partition,
      };
      const own = (verb.form?.fields ?? []).filter(({ isFilter }) => !isFilter);
      const given = Object.fromEntries(own.map(({ option }) => [option, values[kebabCase(option)]]));
      sayWhatIsMissed(verb, given);
      const options = { ...where, ids, ...given, ...(bulk.until && { until: asOf }), reason, by };
      return runVerb(acting, name, options as never);
    },
  };
}

export const BULK = Object.fromEntries(
  ROWS.flatMap(([name, verb]) => (verb.bulk ? [[name, bulkOf(name as BulkName, verb, verb.bulk)]] : [])),
) as Readonly<Record<BulkName, Bulk>>;

/** Whether the page of jobs offers it for a filter. */
export function isOffered(verb: Bulk, filter: Filter): boolean {
  const { state } = filter;
  return missingIn(verb, filter).length === 0 && (state === undefined || verb.states.includes(state));
}

function missingIn({ needs }: Bulk, filter: Filter): readonly string[] {
  if (needs.length === 0 && FILTERS.every((name) => filter[name] === undefined)) return ["policy"];
  return needs.filter((name) => filter[name] === undefined);
}

export const BULK_PAGES: Readonly<Record<string, Page>> = Object.fromEntries(
  Object.entries(BULK).map(([name, verb]) => [
    `/bulk/${name}`,
    async (visit: Visit) =>
      visit.query.has("ended")
        ? resultOf(visit, name as BulkName, verb)
        : askFirst(visit, name as BulkName, verb, visit.query),
  ]),
);

/** Takes the next step of a verb. All that it knows of the steps before is in the form. */
export function stepOn(name: string): (sent: Sent) => Promise<Found> {
  const verb = BULK[name as BulkName];
  return async (sent) => {
    if (!verb) return null;
    const { form, looking, acting, by } = sent;
    const reason = form.get("reason")?.trim();
    if (!reason) return askFirst(sent, name as BulkName, verb, form, "Say why: the audit keeps it.");
    const filter = checked(name, verb, filterOf(form));
    const before = progressOf(form);
    if (form.has("stop")) return ended(sent, name, verb, before, "stopped");
    const { place } = verb;
    const wanted = { states: statesOf(verb, filter), place, after: before.after, most: STEP };
    const jobs = await jobsOf(looking, filter, wanted);
    const asks = { filter, values: valuesIn(form, verb), asOf: before.asOf, reason, by };
    const ids = jobs.map((job) => idFor(job, place));
    const done = ids.length > 0 ? await orSendersError(() => verb.run(acting, ids, asks)) : { changed: 0 };
    if (done instanceof Error)
      return { status: 400, ...(await askFirst(sent, name as BulkName, verb, form, done.message)) };
    const last = jobs.at(-1);
    const now: Progress = {
      ...before,
      after: last === undefined ? before.after : idFor(last, place),
      seen: before.seen + jobs.length,
      changed: before.changed + done.changed,
    };
    if (jobs.length < STEP) return ended(sent, name, verb, now, "done");
    return { title: `${name}: going on`, body: goingOn(sent, name, verb, now) };
  };
}

/** How far the steps are. */
interface Progress {
  /** The place of the last job that was taken. */
  readonly after: string | undefined;
  readonly seen: number;
  readonly changed: number;
  /** How many jobs matched at first, and one more than are counted if they were more. */
  readonly of: number;
  readonly asOf: Date;
}

function progressOf(form: URLSearchParams): Progress {
  const asOf = new Date(form.get("as-of") ?? "");
  if (Number.isNaN(asOf.getTime()))
    throw new ArgumentError(`as-of is ${JSON.stringify(form.get("as-of"))}, expected the time of the count`);
  const number = (name: string) => Number(/^\d{1,9}$/.exec(form.get(name) ?? "")?.[0] ?? 0);
  const after = /^\d{1,18}$/.exec(form.get("after") ?? "")?.[0];
  return { after, seen: number("seen"), changed: number("changed"), of: number("of"), asOf };
}

async function askFirst(visit: Visit, name: BulkName, verb: Bulk, given: URLSearchParams, wrong?: string) {
  if (visit.rights.role !== "operator") return { title: name, body: FOR_OPERATORS };
  const { base, looking } = visit;
  const filter = checked(name, verb, filterOf(given));
  const { engine, withPgClient } = looking;
  const asOf = await withPgClient(engine.now);
  const wanted = { states: statesOf(verb, filter), place: verb.place, most: MOST_COUNTED + 1 };
  const of = await countJobs(looking, filter, wanted);
  const values = valuesIn(given, verb);
  if (of === 0) return nothingMatches(base, name, filter);
  return {
    title: `${name} all that match`,
    body: html`<p>${ACTIONS[name].about}</p>
${factList(factsOf(filter))}
<p><strong>${countInWords(of)}</strong> ${of === 1 ? "matches" : "match"} now. They are taken in steps of ${STEP}, and you can stop after each.</p>
${wrong ? alert(wrong) : ""}
<form class="act" method="post" action="${base}/bulk/${name}">
${hidden(filter)}${hidden({ of, "as-of": asOf.toISOString() })}
${verb.fields.map((field) => fieldInput(field, values[field.name]))}
<label>Reason, for the audit <input name="reason" value="${given.get("reason") ?? ""}" required></label>
<p>${submit(name)}</p>
</form>
<p><a href="${pathTo(base, "/jobs", filter)}">Leave it</a></p>`,
  };
}

function factsOf({ partition, ...filter }: Filter): readonly Fact[] {
  const shown = { ...filter, partition: partition === undefined ? undefined : keyInWords(partition) };
  return FILTERS.map((field) => [field, shown[field]]);
}

function nothingMatches(base: string, name: BulkName, filter: Filter) {
  return {
    title: `${name} all that match`,
    body: html`${factList(factsOf(filter))}
<p><strong>No job</strong> matches now in a state in which ${name} takes jobs.</p>
<p><a href="${pathTo(base, "/jobs", filter)}">Back</a></p>`,
  };
}

/** live.js presses the first button, unless somebody presses the second. */
function goingOn({ base, form }: Sent, name: string, verb: Bulk, now: Progress): Markup {
  const { after, seen, changed, of, asOf } = now;
  const rest = { ...valuesIn(form, verb), reason: form.get("reason"), after, seen, changed, of };
  return html`<p role="status">${inWords(now)}</p>
${of > MOST_COUNTED ? "" : html`<p><progress aria-label="Jobs that were taken" max="${of}" value="${Math.min(seen, of)}"></progress></p>`}
<form class="act" method="post" action="${base}/bulk/${name}">
${hidden(filterOf(form))}${hidden({ ...rest, "as-of": asOf.toISOString() })}
<p><button data-goes-on>go on</button> <button name="stop" value="1">stop</button></p>
</form>`;
}

function ended({ base, form, by }: Sent, name: string, verb: Bulk, now: Progress, how: string): Found {
  const { seen, changed, of, asOf } = now;
  const says = { reason: form.get("reason"), by, seen, changed, of, "as-of": asOf.toISOString(), ended: how };
  return {
    seeOther: pathTo(base, `/bulk/${name}`, {
      ...filterOf(form),
      ...asWritten(valuesIn(form, verb), verb.fields),
      ...says,
    }),
  };
}

/** What the steps have done. The address has all of it. */
function resultOf({ base, query, acting, rights }: Visit, name: BulkName, verb: Bulk) {
  if (rights.role !== "operator") return { title: name, body: FOR_OPERATORS };
  const filter = filterOf(query);
  const now = progressOf(query);
  const how = query.get("ended") ?? "";
  const values = { ...wordsOf(filter), ...valuesIn(query, verb) };
  const [reason, by] = [query.get("reason") ?? "", query.get("by") ?? ""];
  return {
    title: `${name}: ${how}`,
    body: html`<p class="${now.changed > 0 ? "good" : ""}">${inWords(now)}</p>
<p><a href="${pathTo(base, "/jobs", filter)}">Back</a></p>
${how === "done" && isKnown(verb, filter) ? same(name, { values, reason, by, schema: acting.engine.schemaName }) : none}`,
  };
}

/** Whether the verb itself takes such a filter. Of errors only `retry` knows. */
function isKnown(verb: Bulk, { state, policy, task, queue, key, error, added }: Filter): boolean {
  const isOfAll = [task, queue, key, added].every((value) => value === undefined);
  const isOfState = state === undefined || (verb.states.length === 1 && verb.states[0] === state);
  return isOfAll && isOfState && policy !== undefined && (error === undefined || verb === BULK.retry);
}

function wordsOf({ policy, partition, error }: Filter) {
  return { policy, partition, error };
}

function inWords({ seen, changed, of }: Progress): string {
  return `${grouped(seen)} of ${countInWords(of)} were taken, and ${grouped(changed)} changed.`;
}

function countInWords(of: number): string {
  return of > MOST_COUNTED ? `more than ${grouped(MOST_COUNTED)} jobs` : some(of, "job");
}

/** @throws {ArgumentError} if the filter would take more than anybody means */
function checked(name: string, verb: Bulk, filter: Filter): Filter {
  const missing = missingIn(verb, filter);
  if (missing.length > 0)
    throw new ArgumentError(
      `${name} all that match: the filter names no ${missing.join(" and no ")}, so it may match jobs that nobody meant. Fill it ` +
        "in on the page of jobs",
    );
  return filter;
}

/** The verb's own, and of these the one that the filter names. */
function statesOf({ states }: Bulk, { state }: Filter): readonly string[] {
  return state === undefined ? states : states.filter((one) => one === state);
}

/** What was admitted after it was found is known by its staged id still. */
function idFor(job: FoundJob, place: Place): string {
  return String(placeOf(job, place));
}

function valuesIn(form: URLSearchParams, { fields }: Bulk) {
  return Object.fromEntries(
    fields.map(({ name, isKey }) => [name, isKey ? keyIn(form.get(name)) : asked(form, name)]),
  );
}

function hidden(values: Readonly<Record<string, string | number | null | undefined>>): readonly Markup[] {
  return Object.entries(values)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => html`<input type="hidden" name="${name}" value="${String(value)}">`);
}
