import { parameter } from "../../db/engine.ts";
import { JOB_STATES, type JobRow, rowsOf } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { jobLink, partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { moment } from "../parts/words.ts";
import { asked, type Page } from "./visit.ts";

const MOST = 50;
const AFTER = parameter(4, "id");
const WHERE = `where ${ifGiven(1, "state")} and ${ifGiven(2, "policy")} and ${ifGiven(3, "task_identifier")}
  and (${AFTER} is null or id > ${AFTER}) order by id limit ${parameter(5, "int")}`;

/** Jobs of all tasks, with a policy or without. */
export const jobs: Page = async ({ looking, base, query }) => {
  const [state, policy, task, given] = ["state", "policy", "task", "after"].map((name) => asked(query, name));
  const after = given && /^\d{1,18}$/.test(given) ? given : undefined;
  const found = await rowsOf<JobRow>(looking, "jobs", WHERE, [
    ...[state ?? null, policy ?? null, task ?? null, after ?? null, MOST],
  ]);
  const next = found.length === MOST ? found.at(-1)?.id : undefined;
  return {
    title: "Jobs",
    body: html`<form method="get" action="${base}/job" role="search">
<label>Id of a job <input type="search" name="id" inputmode="numeric" required></label><button>Why does it wait?</button>
</form>
<form method="get" action="${base}/jobs">
<label>State <select name="state"><option value="">any</option>${JOB_STATES.map(
      (one) => html`<option${one === state ? html` selected` : ""}>${one}</option>`,
    )}</select></label>
<label>Policy <input name="policy" value="${policy ?? ""}"></label>
<label>Task <input name="task" value="${task ?? ""}"></label>
<button>Show</button>
</form>
${table(
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
        row.policy !== null && row.partition !== null ? partitionLink(base, row.policy, row.partition) : null,
    },
    { title: "Due", cell: (row) => moment(row.runAt) },
    { title: "Attempts", cell: (row) => `${row.attempts} of ${row.maxAttempts}` },
    { title: "Error", cell: (row) => row.lastError?.split("\n")[0] ?? null },
  ],
  "No job matches.",
)}
${next ? html`<p><a href="${pathTo(base, "/jobs", { state, policy, task, after: next })}" rel="next">More</a></p>` : ""}`,
  };
};
