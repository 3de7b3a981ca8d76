import { parameter } from "../../db/engine.ts";
import { JOB_STATES, type JobRow, rowsOf } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { jobLink, partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { asked, type Page, type Visit } from "./visit.ts";

const MOST = 50;
const [ERROR, AFTER] = [parameter(5, "text"), parameter(6, "id")];
const WHERE = `where ${ifGiven(1, "state")} and ${ifGiven(2, "policy")} and ${ifGiven(3, "partition")}
  and ${ifGiven(4, "task_identifier")} and (${ERROR} is null or pg_catalog.strpos(last_error, ${ERROR}) > 0)
  and (${AFTER} is null or id > ${AFTER}) order by id limit ${parameter(7, "int")}`;

interface Row extends JobRow {
  readonly stagedId: string | null;
}

interface Filter {
  readonly state: string | undefined;
  readonly policy: string | undefined;
  readonly partition: string | undefined;
  readonly task: string | undefined;
  readonly error: string | undefined;
}

/** Jobs of all tasks, with a policy or without. */
export const jobs: Page = async (visit) => {
  const { looking, base, query } = visit;
  const [state, policy, partition, task, error, given] = [
    ...["state", "policy", "partition", "task", "error", "after"].map((name) => asked(query, name)),
  ];
  const filter = { state, policy, partition, task, error };
  const after = given && /^\d{1,18}$/.test(given) ? given : undefined;
  const values = [...Object.values(filter), after].map((value) => value ?? null);
  const found = await rowsOf<Row>(looking, "jobs", WHERE, [...values, MOST]);
  const next = found.length === MOST ? found.at(-1)?.id : undefined;
  return {
    title: "Jobs",
    body: html`<form method="get" action="${base}/job" role="search">
<label>Id of a job <input type="search" name="id" inputmode="numeric" required></label><button>Why does it wait?</button>
</form>
${filterForm(filter, base)}
${bulk(visit, filter, found)}
${jobTable(found, base)}
${next ? html`<p><a href="${pathTo(base, "/jobs", { ...filter, after: next })}" rel="next">More</a></p>` : ""}`,
  };
};

function filterForm({ state, policy, partition, task, error }: Filter, base: string): Markup {
  return html`<form method="get" action="${base}/jobs">
<label>State <select name="state"><option value="">any</option>${JOB_STATES.map(
    (one) => html`<option${one === state ? html` selected` : ""}>${one}</option>`,
  )}</select></label>
<label>Policy <input name="policy" value="${policy ?? ""}"></label>
<label>Partition <input name="partition" value="${partition ?? ""}"></label>
<label>Task <input name="task" value="${task ?? ""}"></label>
<label>Error contains <input name="error" value="${error ?? ""}"></label>
<button>Show</button>
</form>`;
}

/** What operators can do with many jobs at once: with those on the page, or with all that the filter matches. */
function bulk({ base, rights }: Visit, filter: Filter, found: readonly Row[]): Markup {
  if (rights.role !== "operator") return none;
  const { state, policy, partition, task, error } = filter;
  const failed = found.filter((row) => row.state === "failed").map(({ id }) => id);
  const waiting = found
    .filter((row) => row.state === "staged" || row.state === "parked")
    .flatMap(({ stagedId }) => stagedId ?? []);
  const links = [
    ...(failed.length > 0 ? [["retry", { ids: failed.join(",") }, `retry these ${failed.length}`]] : []),
    ...(waiting.length > 0 ? [["remove", { ids: waiting.join(",") }, `remove these ${waiting.length}`]] : []),
    // the verb knows no task: with one in the filter it would bring back others too
    ...(state === "failed" && policy !== undefined && task === undefined
      ? [["retry", { policy, partition, error }, "retry all that match"]]
      : []),
  ] as [string, Record<string, string | undefined>, string][];
  if (links.length === 0) return none;
  return html`<ul class="actions">${links.map(
    ([verb, target, says]) => html`<li><a href="${pathTo(base, `/act/${verb}`, target)}">${says}</a></li>`,
  )}</ul>`;
}

function jobTable(found: readonly Row[], base: string): Markup {
  return table(
    `In the order of their ids, at most ${MOST} on a page`,
    found,
    [
      { title: "Id", isNumber: true, cell: (row) => jobLink(base, row.id) },
      { title: "State", cell: (row) => row.state },
      { title: "Task", cell: (row) => row.taskIdentifier },
      { title: "Policy", cell: (row) => (row.policy === null ? null : policyLink(base, row.policy)) },
      {
        title: "Partition",
        cell: (row) =>
          row.policy !== null && row.partition !== null
            ? partitionLink(base, row.policy, row.partition)
            : null,
      },
      // Graphile Worker gives a job a time also after its last attempt
      { title: "Due", cell: (row) => (row.state === "failed" ? "never" : moment(row.runAt)) },
      { title: "Attempts", cell: (row) => `${grouped(row.attempts)} of ${grouped(row.maxAttempts)}` },
      { title: "Error", cell: (row) => row.lastError?.split("\n")[0] ?? null },
    ],
    "No job matches.",
  );
}
