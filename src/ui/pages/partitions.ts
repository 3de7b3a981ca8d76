import { parameter, rowsOf } from "../../operate/view-rows.ts";
import { REASONS, reasonTitle, STOPS } from "../../policy/reasons.ts";
import { ifGiven } from "../if-given.ts";
import { reasonBadge } from "../parts/badge.ts";
import { choice } from "../parts/choice.ts";
import { partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { named } from "../parts/names.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { asked, type Page } from "./visit.ts";

const MOST = 50;
const [SEARCH, ID, LAST] = [parameter(3, "text"), parameter(4, "uuid"), parameter(5, "text")];
const GIVEN = `where ${ifGiven(1, "policy")} and ${ifGiven(2, "reason")}
  and (${SEARCH} is null or pg_catalog.strpos(partition, ${SEARCH}) > 0)
  and (${ID} is null) is not null and (${LAST} is null) is not null`; // else they have no type on the first page
const COUNT = `limit ${parameter(6, "int")}`;

/** What a partition may be in, and its condition. */
const STATES = {
  "with staged jobs": "staged > 0",
  "with jobs in flight": "in_flight > 0",
  "paused or on hold": `reason in (${STOPS.map((stop) => `'${stop}'`).join(", ")})`,
} as const;

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
} as const;
/** Their own order, which takes least. */
const UNSORTED = { column: "id", after: `id > ${ID}`, order: "id" } as const;

interface Row {
  readonly id: string;
  readonly policy: string;
  readonly partition: string;
  readonly staged: number;
  readonly inFlight: number;
  readonly reason: string | null;
  readonly blockedOn: string | null;
  readonly eligibleAt: Date | null;
}

/** The partitions that the address asks for, page by page. */
export const partitions: Page = async ({ looking, base, query }) => {
  const [policy, reason, search, state, sort, after, last] = [
    ...["policy", "reason", "search", "state", "sort", "after", "last"].map((name) => asked(query, name)),
  ];
  const sorted = has(SORTS, sort) ? SORTS[sort] : UNSORTED;
  const where = [
    GIVEN,
    ...(has(STATES, state) ? [STATES[state]] : []),
    ...(after === undefined ? [] : [sorted.after]),
  ].join(" and ");
  const given = [policy ?? null, reason ?? null, search ?? null, after ?? null, last ?? null, MOST];
  const found = await rowsOf<Row>(looking, "partitions", `${where} order by ${sorted.order} ${COUNT}`, given);
  const policies = await looking.withPgClient(looking.engine.policyNames);
  const end = found.length === MOST ? found.at(-1) : undefined;
  return {
    title: "Partitions",
    body: html`<form method="get" action="${base}/partitions">
<label>Key contains <input name="search" value="${search ?? ""}"></label>
${named("policy", "Policy", policies, policy)}
${choice("state", "State", Object.keys(STATES), state)}
${choice("reason", "Waits for", REASONS, reason, "any", (one) => `${reasonTitle(one)} (${one})`)}
${choice("sort", "Sort by", Object.keys(SORTS), sort, "nothing")}
<button>Show</button>
</form>
${table(
  `At most ${MOST} on a page`,
  found,
  [
    { title: "Policy", cell: (row) => policyLink(base, row.policy) },
    { title: "Partition", cell: (row) => partitionLink(base, row.policy, row.partition) },
    { title: "Waits for", cell: (row) => reasonBadge(row.reason, row.blockedOn) },
    { title: "Staged", isNumber: true, cell: (row) => grouped(row.staged) },
    { title: "In flight", isNumber: true, cell: (row) => grouped(row.inFlight) },
    { title: "Next look", cell: (row) => moment(row.eligibleAt) },
  ],
  "No partition matches. One comes into being with its first job.",
)}
${
  end
    ? html`<p><a href="${pathTo(base, "/partitions", { policy, reason, search, state, sort, after: end.id, last: String(end[sorted.column]) })}" rel="next">More</a></p>`
    : ""
}`,
  };
};

function has<Names extends object>(names: Names, name: string | undefined): name is keyof Names & string {
  return name !== undefined && Object.hasOwn(names, name);
}
