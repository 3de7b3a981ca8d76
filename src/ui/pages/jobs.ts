import type { OperateContext } from "../../operate/call.ts";
import { JOB_STATES } from "../../operate/view-rows.ts";
import { actionLink } from "../parts/action-links.ts";
import { jobBadge } from "../parts/badge.ts";
import { choice } from "../parts/choice.ts";
import { jobLink, partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { named } from "../parts/names.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { fieldInput } from "./action.ts";
import { ACTIONS } from "./actions.ts";
import { BULK, type BulkName, isOffered } from "./bulk.ts";
import { IF_EMPTY, titleOf } from "./form.ts";
import { jobCounts } from "./job-counts.ts";
import { BACK, type Filter, type FoundJob, filterOf, jobsOf, WRITTEN } from "./job-filter.ts";
import { asked, type Page, type Visit } from "./visit.ts";

const MOST = 50;

/** Jobs of all tasks, with a policy or without. */
export const jobs: Page = async (visit) => {
  const { looking, base, query } = visit;
  const filter = filterOf(query);
  const given = asked(query, "after");
  const after = given && /^\d{1,18}$/.test(given) ? given : undefined;
  const found = await jobsOf(looking, filter, { place: "id", after, most: MOST });
  const next = found.length === MOST ? found.at(-1)?.id : undefined;
  return {
    title: "Jobs",
    body: html`${stateLinks(filter, base, await jobCounts(looking, filter))}
${filterForm(filter, base, await namesOf(looking))}
${bulk(visit, filter, found)}
${jobTable(found, base)}
${next ? html`<p><a href="${pathTo(base, "/jobs", { ...filter, after: next })}" rel="next">More</a></p>` : ""}`,
  };
};

/** The same filter for each state, by one click. */
function stateLinks(filter: Filter, base: string, counts: ReadonlyMap<string, string>): Markup {
  const count = (state = "") => (counts.has(state) ? html` <small>${counts.get(state)}</small>` : "");
  return html`<nav class="choices" aria-label="What jobs are in"><ul>${[undefined, ...JOB_STATES].map(
    (state) =>
      html`<li><a href="${pathTo(base, "/jobs", { ...filter, state })}"${
        state === filter.state ? html` aria-current="true"` : ""
      }>${state ?? "any"}${count(state)}</a></li>`,
  )}</ul></nav>`;
}

/** What the filter completes. */
type Names = Readonly<Record<"policies" | "tasks", readonly string[]>>;

async function namesOf({ engine, withPgClient }: OperateContext): Promise<Names> {
  return { policies: await withPgClient(engine.policyNames), tasks: await withPgClient(engine.taskNames) };
}

function filterForm(filter: Filter, base: string, names: Names): Markup {
  const text = (name: keyof Filter, label: string) =>
    html`<label>${label} <input name="${name}" value="${filter[name] ?? ""}"></label>`;
  return html`<form method="get" action="${base}/jobs">
${choice("state", "State", JOB_STATES, filter.state)}
${named("policy", "Policy", names.policies, filter.policy)}
${fieldInput({ name: WRITTEN, label: "Partition", isKey: true, hint: IF_EMPTY }, filter.partition)}
${named("task", "Task", names.tasks, filter.task)}
${text("queue", "Queue")}
${text("key", "Job key")}
${choice("added", "Added within", Object.keys(BACK), filter.added)}
${text("error", "Error contains")}
<button>Show</button>
</form>`;
}

/** What operators can do with many jobs at once: with those on the page, or with all that the filter matches. */
function bulk({ base, rights }: Visit, filter: Filter, found: readonly FoundJob[]): Markup {
  if (rights.role !== "operator" || found.length === 0) return none;
  const failed = found.filter((row) => row.state === "failed").map(({ id }) => id);
  const waiting = found
    .filter((row) => row.state === "staged" || row.state === "parked")
    .flatMap(({ stagedId }) => stagedId ?? []);
  const these = [
    ...(failed.length > 0 ? [["retry", failed] as const] : []),
    ...(waiting.length > 0 ? [["remove", waiting] as const] : []),
  ];
  const all = (Object.keys(BULK) as BulkName[]).filter((verb) => isOffered(BULK[verb], filter));
  if (these.length + all.length === 0) return none;
  return html`<ul class="actions">${these.map(
    ([verb, ids]) =>
      html`<li>${actionLink(verb, pathTo(base, `/act/${verb}`, { ids: ids.join(",") }), `${titleOf(ACTIONS[verb])} these ${ids.length}`)}</li>`,
  )}${all.map(
    (verb) =>
      html`<li>${actionLink(verb, pathTo(base, `/bulk/${verb}`, filter), `${titleOf(ACTIONS[verb])} all that match`)}</li>`,
  )}</ul>`;
}

function jobTable(found: readonly FoundJob[], base: string): Markup {
  return table(
    `In the order of their ids, at most ${MOST} on a page`,
    found,
    [
      { title: "Id", isNumber: true, cell: (row) => jobLink(base, row.id) },
      { title: "State", cell: (row) => jobBadge(row.state) },
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
