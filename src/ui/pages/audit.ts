import { keyInWords } from "../../operate/gate-words.ts";
import { type AuditRow, parameter, rowsOf } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { named } from "../parts/names.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { asked, type Page } from "./visit.ts";

const MOST = 50;
const BEFORE = parameter(3, "id");
const WHERE = `where ${ifGiven(1, "policy")} and ${ifGiven(2, "by")} and (${BEFORE} is null or id < ${BEFORE})
  order by id desc limit ${parameter(4, "int")}`;

/** What operators did, the newest first. */
export const audit: Page = async ({ looking, base, query }) => {
  const [policy, by, given] = ["policy", "by", "before"].map((name) => asked(query, name));
  const before = given && /^\d{1,18}$/.test(given) ? given : undefined;
  const found = await rowsOf<AuditRow>(looking, "audit", WHERE, [
    policy ?? null,
    by ?? null,
    before ?? null,
    MOST,
  ]);
  const policies = await looking.withPgClient(looking.engine.policyNames);
  const next = found.length === MOST ? found.at(-1)?.id : undefined;
  return {
    title: "Audit",
    body: html`<form method="get" action="${base}/audit">
${named("policy", "Policy", policies, policy)}
<label>By <input name="by" value="${by ?? ""}"></label>
<button>Show</button>
</form>
${table(
  "The newest first",
  found,
  [
    { title: "At", cell: ({ at }) => moment(at) },
    { title: "Verb", cell: ({ verb }) => verb },
    {
      title: "For",
      cell: ({ policy: p, partition, gate, scopeKey }) => {
        const rest = [gate, scopeKey].filter((part) => part !== null).map(keyInWords);
        const linked = [
          ...(p === null ? [] : [policyLink(base, p)]),
          ...(p === null || partition === null ? [] : [partitionLink(base, p, partition)]),
        ];
        return linked.length + rest.length === 0
          ? "all"
          : html`${[...linked, ...rest].map((part, n) => html`${n > 0 ? " / " : ""}${part}`)}`;
      },
    },
    {
      title: "Changed",
      isNumber: true,
      cell: ({ matched, changed }) => `${grouped(changed)} of ${grouped(matched)}`,
    },
    { title: "By", cell: (row) => row.by },
    { title: "Reason", cell: ({ reason }) => reason },
  ],
  "No operator has done anything yet.",
)}
${next ? html`<p><a href="${pathTo(base, "/audit", { policy, by, before: next })}" rel="next">Older</a></p>` : ""}`,
  };
};
