import { some } from "../../counted.ts";
import { ArgumentError } from "../../errors.ts";
import type { OperateContext } from "../../operate/call.ts";
import { keyInWords } from "../../operate/gate-words.ts";
import type { Changed } from "../../operate/targets.ts";
import type { AnyVerb, Bulk as BulkVerb } from "../../operate/verb.ts";
import { kebabCase, ROWS, runVerb } from "../../operate/verbs.ts";
import { hidden } from "../parts/choice.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { pathTo } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { grouped } from "../parts/words.ts";
import { orSendersError } from "../senders-error.ts";
import { alert, FOR_OPERATORS, fieldInput, submit } from "./action.ts";
import { ACTIONS, sayWhatIsMissed } from "./actions.ts";
import { type Field, keyIn, titleOf, type Values } from "./form.ts";
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
import { callingFor, isTooOld, newToken, recordedBy, tokenIn, unlessSentTwice } from "./one-time.ts";
import { same } from "./same.ts";
import { type Act, asked, type Found, type Page, type Sent, type Visit } from "./visit.ts";

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
    (visit: Visit) => askFirst(visit, name as BulkName, verb, visit.query),
  ]),
);

/** What sending their forms does: it takes the next step. All that it knows of the steps before is in the form, and in the audit. */
export const BULK_ACTS: Readonly<Record<string, Act>> = Object.fromEntries(
  Object.entries(BULK).map(([name, verb]) => [
    `/bulk/${name}`,
    (sent: Sent) => stepOn(sent, name as BulkName, verb),
  ]),
);

async function stepOn(sent: Sent, name: BulkName, verb: Bulk): Promise<Found> {
  const { base, form, looking, acting, by } = sent;
  const reason = form.get("reason")?.trim();
  if (!reason) return askFirst(sent, name, verb, form, "Say why: the audit keeps it.");
  const filter = checked(name, verb, filterOf(form));
  const token = tokenIn(form.get("form"));
  const before = progressOf(form);
  const [last] = token && before.step > 0 ? await recordedBy(looking, token, before.step - 1) : [];
  const tooOld = await isTooOld(looking, token, last?.at);
  if (!token || tooOld) return { status: 409, ...(await askFirst(sent, name, verb, form, tooOld)) };
  const end = { seeOther: pathTo(base, "/jobs", { ...filter, did: token.text }) };
  if (form.has("stop")) return end;
  const goOn = (now: Progress) => ({
    title: `${titleOf(ACTIONS[name])}: going on`,
    body: goingOn(sent, name, verb, now),
  });
  // its page was loaded again: what the step did, it has done once
  const [done] = await recordedBy(looking, token, before.step);
  if (done) return goOn(stepped(before, done.matched, done.changed));
  const { place } = verb;
  const wanted = { states: statesOf(verb, filter), place, after: before.after, most: STEP };
  const jobs = await jobsOf(looking, filter, wanted);
  const asks = { filter, values: valuesIn(form, verb), asOf: token.madeAt, reason, by };
  const ids = jobs.map((job) => idFor(job, place));
  const taken = async () =>
    ids.length > 0 ? verb.run(callingFor(acting, token, before.step), ids, asks) : { changed: 0 };
  const result = await orSendersError(() => taken().catch(unlessSentTwice));
  if (result instanceof Error)
    return { status: 400, ...(await askFirst(sent, name, verb, form, result.message)) };
  const now = stepped(before, jobs.length, result?.changed ?? 0);
  return jobs.length < STEP ? end : goOn({ ...now, after: ids.at(-1) });
}

/** How far the steps are. */
interface Progress {
  /** The next one; the first is 0. */
  readonly step: number;
  /** The place of the last job that was taken. */
  readonly after: string | undefined;
  readonly seen: number;
  readonly changed: number;
  /** How many jobs matched at first, and one more than are counted if they were more. */
  readonly of: number;
}

function progressOf(form: URLSearchParams): Progress {
  const number = (name: string) => Number(/^\d{1,9}$/.exec(form.get(name) ?? "")?.[0] ?? 0);
  const after = /^\d{1,18}$/.exec(form.get("after") ?? "")?.[0];
  return { step: number("step"), after, seen: number("seen"), changed: number("changed"), of: number("of") };
}

function stepped(before: Progress, seen: number, changed: number): Progress {
  return {
    ...before,
    step: before.step + 1,
    seen: before.seen + seen,
    changed: before.changed + changed,
  };
}

async function askFirst(
  visit: Visit,
  name: BulkName,
  verb: Bulk,
  given: URLSearchParams,
  wrong?: string | Markup,
) {
  if (visit.rights.role !== "operator") return { title: titleOf(ACTIONS[name]), body: FOR_OPERATORS };
  const { base, looking } = visit;
  const filter = checked(name, verb, filterOf(given));
  const token = await newToken(looking);
  const wanted = { states: statesOf(verb, filter), place: verb.place, most: MOST_COUNTED + 1 };
  const of = await countJobs(looking, filter, wanted);
  const values = valuesIn(given, verb);
  if (of === 0) return nothingMatches(base, name, filter);
  return {
    title: `${titleOf(ACTIONS[name])} all that match`,
    body: html`<p>${ACTIONS[name].about}</p>
${factList(factsOf(filter))}
<p><strong>${countInWords(of)}</strong> ${of === 1 ? "matches" : "match"} now. They are taken in steps of ${STEP}, and you can stop after each.</p>
${wrong ? alert(wrong) : ""}
<form class="act" method="post" action="${base}/bulk/${name}">
${hidden(filter)}${hidden({ of, form: token })}
${verb.fields.map((field) => fieldInput(field, values[field.name]))}
<label>Reason, for the audit <input name="reason" value="${given.get("reason") ?? ""}" required></label>
<p>${submit(name)}</p>
</form>
<p><a href="${pathTo(base, "/jobs", filter)}">Leave it</a></p>
${isKnown(verb, filter) && verb.fields.every(({ name }) => values[name]) ? sameFor(visit, name, { ...wordsOf(filter), ...values }) : none}`,
  };
}

/** While the form still waits for a reason. */
function sameFor({ looking }: Visit, name: BulkName, values: Values): Markup {
  return same(name, { values, reason: "why", by: "who", schema: looking.engine.schemaName });
}

function factsOf({ partition, ...filter }: Filter): readonly Fact[] {
  const shown = { ...filter, partition: partition === undefined ? undefined : keyInWords(partition) };
  return FILTERS.map((field) => [field, shown[field]]);
}

function nothingMatches(base: string, name: BulkName, filter: Filter) {
  return {
    title: `${titleOf(ACTIONS[name])} all that match`,
    body: html`${factList(factsOf(filter))}
<p><strong>No job</strong> matches now in a state in which ${name} takes jobs.</p>
<p><a href="${pathTo(base, "/jobs", filter)}">Back</a></p>`,
  };
}

/** live.js presses the first button, unless somebody presses the second. */
function goingOn({ base, form }: Sent, name: string, verb: Bulk, now: Progress): Markup {
  const { of, seen } = now;
  const rest = { ...valuesIn(form, verb), reason: form.get("reason"), form: form.get("form") };
  return html`<p role="status">${inWords(now)}</p>
${of > MOST_COUNTED ? "" : html`<p><progress aria-label="Jobs that were taken" max="${of}" value="${Math.min(seen, of)}"></progress></p>`}
<form class="act" method="post" action="${base}/bulk/${name}">
${hidden(filterOf(form))}${hidden({ ...rest, ...now })}
<p><button data-goes-on>go on</button> <button name="stop" value="1">stop</button></p>
</form>`;
}

/** Whether the verb itself takes such a filter. Of errors only `retry` knows. */
function isKnown(verb: Bulk, { state, policy, task, queue, key, error, added, alike }: Filter): boolean {
  const isOfAll = [task, queue, key, added, alike].every((value) => value === undefined);
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
