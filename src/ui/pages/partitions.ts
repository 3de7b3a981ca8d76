import { parameter } from "../../db/engine.ts";
import { REASONS } from "../../operate/look.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { asked, type Page } from "./visit.ts";

const MOST = 50;
const [SEARCH, AFTER] = [parameter(3, "text"), parameter(4, "uuid")];
const WHERE = `where ${ifGiven(1, "policy")} and ${ifGiven(2, "reason")}
  and (${SEARCH} is null or pg_catalog.strpos(partition, ${SEARCH}) > 0) and (${AFTER} is null or id > ${AFTER})
  order by id limit ${parameter(5, "int")}`;

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
  const [policy, reason, search, after] = ["policy", "reason", "search", "after"].map((name) =>
    asked(query, name),
  );
  const given = [policy ?? null, reason ?? null, search ?? null, after ?? null, MOST];
  const found = await rowsOf<Row>(looking, "partitions", WHERE, given);
  const next = found.length === MOST ? found.at(-1)?.id : undefined;
  return {
    title: "Partitions",
    body: html`<form method="get" action="${base}/partitions" role="search">
<label>Key contains <input type="search" name="search" value="${search ?? ""}"></label>
<label>Policy <input name="policy" value="${policy ?? ""}"></label>
<label>Reason <select name="reason"><option value="">any</option>${REASONS.map(
      (one) => html`<option${one === reason ? html` selected` : ""}>${one}</option>`,
    )}</select></label>
<button>Show</button>
</form>
${table(
  `At most ${MOST} on a page`,
  found,
  [
    { title: "Policy", cell: (row) => policyLink(base, row.policy) },
    { title: "Partition", cell: (row) => partitionLink(base, row.policy, row.partition) },
    { title: "Reason", cell: (row) => row.reason },
    { title: "Gate", cell: (row) => row.blockedOn },
    { title: "Staged", isNumber: true, cell: (row) => grouped(row.staged) },
    { title: "In flight", isNumber: true, cell: (row) => grouped(row.inFlight) },
    { title: "Next look", cell: (row) => moment(row.eligibleAt) },
  ],
  "No partition matches. One comes into being with its first job.",
)}
${next ? html`<p><a href="${pathTo(base, "/partitions", { policy, reason, search, after: next })}" rel="next">More</a></p>` : ""}`,
  };
};
