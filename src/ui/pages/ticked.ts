// A verb for the partitions that somebody has ticked. It is called for one after the other, each with its row in the audit. A
// form that was cut short is sent again: it goes on with those that have no row yet.
import { some } from "../../counted.ts";
import { ArgumentError } from "../../errors.ts";
import { kebabCase, ROWS } from "../../operate/verbs.ts";
import { hidden } from "../parts/choice.ts";
import { factList } from "../parts/facts.ts";
import { partitionLink, pathTo } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { orSendersError } from "../senders-error.ts";
import { alert, countInWords, FOR_OPERATORS, fieldInput, fieldsIn, firstOf, submit } from "./action.ts";
import { ACTIONS } from "./actions.ts";
import { type ActionName, type Counted, titleOf, type Values } from "./form.ts";
import { callingFor, newToken, recordedBy, tokenIn, unlessSentTwice, whyNot } from "./one-time.ts";
import { type Act, asked, type Found, type Page, type Sent, type Visit } from "./visit.ts";

/** As many as the list has on a page. A made-up form with more would keep everybody waiting. */
const MOST = 50;

/** What the list of partitions offers for those that are ticked. */
export const FOR_TICKED: readonly ActionName[] = ROWS.flatMap(([name, { form }]) =>
  form?.isForMany ? [kebabCase(name) as ActionName] : [],
);

/** What the list is filtered by, to lead back to it. */
const LISTED_BY = ["policy", "reason", "search", "state", "sort"] as const;

interface Ticked {
  readonly policy: string;
  readonly partition: string;
}

/** As the box in the list has it. */
export const boxOf = ({ policy, partition }: Ticked): string => JSON.stringify([policy, partition]);

/** The pages that undo what a form has done: its address names that form. */
export const TICKED_PAGES: Readonly<Record<string, Page>> = Object.fromEntries(
  FOR_TICKED.map((name) => [
    `/ticked/${name}`,
    async (visit: Visit) => {
      if (visit.rights.role !== "operator") return { title: titleOf(ACTIONS[name]), body: FOR_OPERATORS };
      const token = tokenIn(visit.query.get("of"));
      const rows = token ? await recordedBy(visit.looking, token) : [];
      const ticked = rows.flatMap(({ policy, partition }) =>
        policy !== null && partition !== null ? [{ policy, partition }] : [],
      );
      return ticked.length > 0 ? askFirst(visit, name, ticked, visit.query) : nothingTicked(visit, name);
    },
  ]),
);

export const TICKED_ACTS: Readonly<Record<string, Act>> = Object.fromEntries(
  FOR_TICKED.map((name) => [`/ticked/${name}`, (sent: Sent) => actOn(sent, name)]),
);

async function actOn(sent: Sent, name: ActionName): Promise<Found> {
  const { acting, looking, form, by, base } = sent;
  const ticked = tickedIn(form);
  // from the list: it asks, as a page does, but the addresses of pages have no room for fifty keys
  if (!form.has("form")) return askFirst(sent, name, ticked, form);
  const token = tokenIn(form.get("form"));
  const reason = form.get("reason")?.trim();
  if (!reason) return askFirst(sent, name, ticked, form, "Say why: the audit keeps it.");
  const recorded = token ? await recordedBy(looking, token) : [];
  const isDone = ({ policy, partition }: Ticked) =>
    recorded.some((row) => row.policy === policy && row.partition === partition);
  const values = fieldsIn(form, ACTIONS[name].fields);
  for (const one of ticked) {
    if (isDone(one)) continue;
    const stale = await whyNot(looking, token, { ...one }, Object.keys(ACTIONS));
    if (stale || !token) return { status: 409, ...(await askFirst(sent, name, ticked, form, stale)) };
  }
  const run = async () => {
    for (const [n, one] of ticked.entries())
      if (token && !isDone(one))
        await ACTIONS[name]
          .run(callingFor(acting, token, n), { ...values, ...one, reason, by })
          .catch(unlessSentTwice);
    return undefined;
  };
  const wrong = await orSendersError(run);
  if (wrong instanceof Error)
    return { status: 400, ...(await askFirst(sent, name, ticked, form, wrong.message)) };
  return { seeOther: pathTo(base, "/partitions", { ...listIn(form), did: token?.text }) };
}

async function askFirst(
  visit: Visit,
  name: ActionName,
  ticked: readonly Ticked[],
  given: URLSearchParams,
  wrong?: string | Markup,
) {
  const action = ACTIONS[name];
  const title = `${titleOf(action)} ${some(ticked.length, "partition")}`;
  const { base, looking, acting } = visit;
  const counted: Counted[] = [];
  for (const one of ticked) {
    const its = await action.count?.(acting, { ...one }, {});
    if (its) counted.push(its);
  }
  const values = fieldsIn(given, action.fields);
  const list = listIn(given);
  return {
    title,
    body: html`<p>${action.about}</p>
${factList([["partitions", firstOf(ticked, (one) => partitionLink(base, one.policy, one.partition))]])}
<p>${countInWords(sumOf(counted))}</p>
${wrong ? alert(wrong) : ""}
<form class="act" method="post" action="${base}/ticked/${name}">
${hidden({ form: await newToken(looking), ...listFields(list) })}
${ticked.map((one) => html`<input type="hidden" name="at" value="${boxOf(one)}">`)}
${action.fields.map((field) => fieldInput(field, values[field.name]))}
<label>Reason, for the audit <input name="reason" value="${given.get("reason") ?? ""}" required></label>
<p>${submit(name)}</p>
</form>
<p><a href="${pathTo(base, "/partitions", list)}">Leave it</a></p>`,
  };
}

/** Its address alone names no partition. */
function nothingTicked({ base }: Visit, name: ActionName) {
  return {
    title: titleOf(ACTIONS[name]),
    body: html`<p>No partition is ticked here. Tick some in <a href="${base}/partitions">the list</a>.</p>`,
  };
}

function sumOf(counted: readonly Counted[]): Counted {
  const sum = (what: "matched" | "changed" | "partitions" | "staged" | "inFlight") =>
    counted.reduce((total, one) => total + (one[what] ?? 0), 0);
  return {
    ...{ matched: sum("matched"), changed: sum("changed"), partitions: sum("partitions") },
    ...{ staged: sum("staged"), inFlight: sum("inFlight") },
  };
}

/** @throws {ArgumentError} if nothing was ticked, or what no box says */
function tickedIn(form: URLSearchParams): readonly Ticked[] {
  const boxes = [...new Set(form.getAll("at"))];
  if (boxes.length === 0)
    throw new ArgumentError(
      "at is empty, expected at least one partition: go back, and tick those that you mean",
    );
  if (boxes.length > MOST)
    throw new ArgumentError(`${boxes.length} partitions are ticked, expected at most ${MOST}`);
  return boxes.map((box) => {
    const ticked = tickedBy(box);
    if (ticked) return ticked;
    throw new ArgumentError(`at is ${box.slice(0, 100)}, expected ["policy","key"] as the list has it`);
  });
}

/** Undefined: no box of the list says so. */
function tickedBy(box: string): Ticked | undefined {
  try {
    const given: unknown = JSON.parse(box);
    if (!Array.isArray(given) || given.length !== 2 || given.some((one) => typeof one !== "string"))
      return undefined;
    const [policy, partition] = given as [string, string];
    return { policy, partition };
  } catch {
    return undefined; // no JSON
  }
}

/** The filter of the list, for the form to send. */
export function listFields(list: Values): Values {
  return Object.fromEntries(LISTED_BY.map((name) => [`list-${name}`, list[name]]));
}

function listIn(given: URLSearchParams): Values {
  return Object.fromEntries(LISTED_BY.map((name) => [name, asked(given, `list-${name}`)]));
}
