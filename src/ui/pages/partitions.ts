import type { OperateContext } from "../../operate/call.ts";
import { parameter, rowsBy } from "../../operate/view-rows.ts";
import { reasonTitle, STOPS } from "../../policy/reasons.ts";
import { ifGiven } from "../if-given.ts";
import { reasonBadge } from "../parts/badge.ts";
import { choice, hidden } from "../parts/choice.ts";
import { compared, gauge } from "../parts/gauge.ts";
import { partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { named } from "../parts/names.ts";
import { type Column, table } from "../parts/table.ts";
import { aMinute, grouped, moment } from "../parts/words.ts";
import { ACTIONS } from "./actions.ts";
import { titleOf } from "./form.ts";
import { boxOf, FOR_TICKED, listFields } from "./ticked.ts";
import { asked, type Page, type Rights } from "./visit.ts";

const MOST = 50;
const [REASON, SEARCH, ID, LAST] = [
  parameter(2, "text"),
  parameter(3, "text"),
  parameter(4, "uuid"),
  parameter(5, "text"),
];
const LATER = "next_due_at > pg_catalog.statement_timestamp()";
/** What waits for a reason has jobs, as where partitions are counted by reason. */
const GIVEN = `where ${ifGiven(1, "policy")}
  and (${REASON} is null or (staged > 0 and coalesce(reason, case when ${LATER} then 'not_due' else 'none' end) = ${REASON}))
  and (${SEARCH} is null or pg_catalog.strpos(partition, ${SEARCH}) > 0)
  and (${ID} is null) is not null and (${LAST} is null) is not null`; // else they have no type on the first page

/** What a partition may be in, and its condition. */
const STATES = {
  "with staged jobs": "staged > 0",
  "with jobs in flight": "in_flight > 0",
  "paused or on hold": `reason in (${STOPS.map((stop) => `'${stop}'`).join(", ")})`,
} as const;

/** As exact as JavaScript knows a time: else the last row of a page would begin the next one. */
const DUE = "coalesce(pg_catalog.date_trunc('milliseconds', next_due_at), 'infinity')";

/** How they may be sorted. Each names the row after which the next page begins by its column, and by its id. */
const SORTS = {
  key: { column: "partition", after: `(partition, id) > (${LAST}, ${ID})`, order: "partition, id" },
  "most staged": {
    column: "staged",
    after: `(staged, ${ID}) < (${LAST}::pg_catalog.int8, id)`,
    order: "staged desc, id",
  },
  "most in flight": {
    column: "inFlight",
    after: `(in_flight, ${ID}) < (${LAST}::pg_catalog.int8, id)`,
    order: "in_flight desc, id",
  },
  "most admitted": {
    column: "admittedTotal",
    after: `(admitted_total, ${ID}) < (${LAST}::pg_catalog.int8, id)`,
    order: "admitted_total desc, id",
  },
} as const;
/** Those with work first, the longest due before all others. */
const BY_DUE = {
  column: "nextDueAt",
  after: `(${DUE}, id) > (${LAST}::pg_catalog.timestamptz, ${ID})`,
  order: `${DUE}, id`,
} as const;

interface Row {
  readonly id: string;
  readonly policy: string;
  readonly partition: string;
  readonly staged: number;
  readonly inFlight: number;
  readonly reason: string | null;
  readonly blockedOn: string | null;
  readonly nextDueAt: Date | null;
  readonly admitsAMinute: number | null;
  readonly admittedTotal: number;
}

/** How full the narrowest cap of a partition is. */
interface Cap {
  readonly id: string;
  readonly gate: string;
  /** It counts over the partition alone. */
  readonly isOwn: boolean;
  readonly inFlight: number;
  readonly max: number;
}

/** The partitions that the address asks for, page by page. */
export const partitions: Page = async ({ looking, base, query, rights }) => {
  const [policy, reason, search, state, sort, after, last] = [
    ...["policy", "reason", "search", "state", "sort", "after", "last"].map((name) => asked(query, name)),
  ];
  const sorted = has(SORTS, sort) ? SORTS[sort] : BY_DUE;
  const where = [
    GIVEN,
    ...(has(STATES, state) ? [STATES[state]] : []),
    ...(after === undefined ? [] : [sorted.after]),
  ].join(" and ");
  const { engine, withPgClient } = looking;
  const given = [policy, reason, search, after, last].map((one) => one ?? null);
  const found = await rowsBy<Row>(looking, (client) =>
    engine.partitionsPage(client, where, sorted.order, MOST, given),
  );
  const caps = await capsOf(looking, found);
  const counts = await withPgClient((client) => engine.partitionsByReason(client, policy));
  const policies = await withPgClient(engine.policyNames);
  const end = found.length === MOST ? found.at(-1) : undefined;
  const asks = { policy, search, sort };
  return {
    title: "Partitions",
    body: html`${choices({ ...asks, state, reason }, counts, base)}
<form method="get" action="${base}/partitions">
<label>Key contains <input name="search" value="${search ?? ""}"></label>
${named("policy", "Policy", policies, policy)}
${choice("sort", "Sort by", Object.keys(SORTS), sort, "longest due")}
${hidden({ state, reason })}
<button>Show</button>
</form>
${forTicked(found, base, { ...asks, state, reason }, rights)}
${table(
  `${has(SORTS, sort) ? "At" : "Those with work first, the longest due before all others: at"} most ${MOST} on a page`,
  found,
  [...(rights.role === "operator" ? [TICK] : []), ...columns(found, caps, sort, base)],
  "No partition matches. One comes into being with its first job.",
)}
${
  end
    ? html`<p><a href="${pathTo(base, "/partitions", { ...asks, reason, state, after: end.id, last: placeOf(end, sorted.column) })}" rel="next">More</a></p>`
    : ""
}`,
  };
};

/** The form to which the boxes in the table belong. */
const TICKED = "ticked";

const TICK: Column<Row> = {
  title: "Tick",
  cell: (row) =>
    html`<input type="checkbox" name="at" value="${boxOf(row)}" form="${TICKED}" aria-label="Partition ${row.partition} of ${row.policy}">`,
};

/** What operators can do with those that they tick. The page that a button leads to asks first. */
function forTicked(found: readonly Row[], base: string, asks: Asks, { role }: Rights): Markup {
  if (role !== "operator" || found.length === 0) return none;
  // the form itself is no post: live.js reads a page with such a form no more
  return html`<form class="actions" id="${TICKED}">
${hidden(listFields(asks))}
${FOR_TICKED.map((name) => html`<button formmethod="post" formaction="${base}/ticked/${name}">${titleOf(ACTIONS[name])} ticked</button>`)}
</form>`;
}

async function capsOf(looking: OperateContext, found: readonly Row[]): Promise<ReadonlyMap<string, Cap>> {
  const ids = found.map(({ id }) => id);
  const caps = await rowsBy<Cap>(looking, (client) => looking.engine.partitionCaps(client, ids));
  return new Map(caps.map((cap) => [cap.id, cap]));
}

type Asks = Readonly<Record<"policy" | "search" | "sort" | "state" | "reason", string | undefined>>;

/** What partitions wait for, and what else they are in, each with how many these are, if the policy alone narrows them. */
function choices(
  { state, reason, ...asks }: Asks,
  counts: readonly { readonly reason: string; readonly partitions: number }[],
  base: string,
): Markup {
  const isCounted = asks.search === undefined;
  const one = (says: string, wanted: { state?: string; reason?: string }, count?: number) =>
    html`<li><a href="${pathTo(base, "/partitions", { ...asks, ...wanted })}"${
      state === wanted.state && reason === wanted.reason ? html` aria-current="true"` : ""
    }>${says}${count === undefined || !isCounted ? "" : html` <small>${grouped(count)}</small>`}</a></li>`;
  const reasons = counts.toSorted((a, b) => b.partitions - a.partitions);
  // nobody may wait for it any more
  if (reason !== undefined && !reasons.some((its) => its.reason === reason))
    reasons.push({ reason, partitions: 0 });
  const [staged, ...others] = Object.keys(STATES);
  const waiting = reasons.reduce((sum, { partitions }) => sum + partitions, 0);
  return html`<nav class="choices" aria-label="What partitions are in"><ul>${one("any", {})}${one(staged as string, { state: staged as string }, waiting)}${reasons.map(
    (its) => one(reasonTitleOf(its.reason, reasons), { reason: its.reason }, its.partitions),
  )}${others.map((state) => one(state, { state }))}</ul></nav>`;
}

/** Of two reasons with the same title each has its code as well. */
function reasonTitleOf(reason: string, all: readonly { readonly reason: string }[]): string {
  if (reason === "none") return "In line";
  const title = reasonTitle(reason);
  return all.filter((other) => reasonTitle(other.reason) === title).length > 1
    ? `${title} (${reason})`
    : title;
}

function columns(
  found: readonly Row[],
  caps: ReadonlyMap<string, Cap>,
  sort: string | undefined,
  base: string,
): readonly Column<Row>[] {
  const most = Math.max(...found.map(({ staged }) => staged));
  return [
    { title: "Policy", cell: (row) => policyLink(base, row.policy) },
    { title: "Partition", cell: (row) => partitionLink(base, row.policy, row.partition) },
    { title: "Waits for", cell: waitsFor },
    { title: "Due", cell: (row) => moment(row.nextDueAt) },
    {
      title: "Waiting",
      isNumber: true,
      cell: (row) => html`${grouped(row.staged)}${compared(row.staged, most)}`,
    },
    { title: "In flight", isNumber: true, cell: (row) => inFlight(row, caps.get(row.id)) },
    {
      title: "Admitted a minute",
      isNumber: true,
      cell: (row) => (row.admitsAMinute === null ? null : aMinute(row.admitsAMinute)),
    },
    ...(sort === "most admitted"
      ? [{ title: "Admitted in all", isNumber: true, cell: (row: Row) => grouped(row.admittedTotal) }]
      : []),
  ];
}

function waitsFor({ reason, blockedOn, staged, nextDueAt }: Row): Markup | string | null {
  if (reason !== null || staged === 0) return reasonBadge(reason, blockedOn);
  return nextDueAt && nextDueAt.getTime() > Date.now() ? reasonBadge("not_due") : "in line";
}

/** Of how many, with a bar: by the partition's own cap, or else by one that it shares. */
function inFlight(row: Row, cap: Cap | undefined): Markup | string {
  if (!cap) return grouped(row.inFlight);
  const bar = gauge(cap.inFlight, cap.max);
  return cap.isOwn
    ? html`${bar}${grouped(row.inFlight)} of ${grouped(cap.max)}`
    : html`${bar}${grouped(row.inFlight)} <small>${cap.gate} ${grouped(cap.inFlight)} of ${grouped(cap.max)}</small>`;
}

/** As the next page's address has it. */
function placeOf(
  row: Row,
  column: (typeof SORTS)[keyof typeof SORTS]["column"] | typeof BY_DUE.column,
): string {
  return column === "nextDueAt" ? (row.nextDueAt?.toISOString() ?? "infinity") : String(row[column]);
}

function has<Names extends object>(names: Names, name: string | undefined): name is keyof Names & string {
  return name !== undefined && Object.hasOwn(names, name);
}
