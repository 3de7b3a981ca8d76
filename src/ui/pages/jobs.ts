import type { OperateContext } from "../../operate/call.ts";
import { JOB_STATES } from "../../operate/view-rows.ts";
import { firstLine } from "../../operate/words.ts";
import { actionLink } from "../parts/action-links.ts";
import { jobBadge } from "../parts/badge.ts";
import { choice, hidden } from "../parts/choice.ts";
import { compared } from "../parts/gauge.ts";
import { jobLink, partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { named } from "../parts/names.ts";
import { type Column, table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { ACTIONS, ENDS } from "./actions.ts";
import { BULK, type BulkName, isOffered } from "./bulk.ts";
import { IF_EMPTY, keyAsWritten, titleOf } from "./form.ts";
import { jobCounts } from "./job-counts.ts";
import {
  BACK,
  type FailedJob,
  type Filter,
  type FoundJob,
  failedJobs,
  filterOf,
  jobsOf,
  WRITTEN,
} from "./job-filter.ts";
import { asked, type Page, type Visit } from "./visit.ts";

const MOST = 50;

/** How many failed jobs are counted by error, and put in order by when they failed. */
const MOST_FAILED = 1000;
const MOST_ERRORS = 20;

/** Jobs of all tasks, with a policy or without. */
export const jobs: Page = async (visit) => {
  const { looking, base, query } = visit;
  const filter = filterOf(query);
  const counts = await jobCounts(looking, filter);
  const failed = filter.state === "failed" ? await failedJobs(looking, filter, MOST_FAILED) : undefined;
  if (failed) counts.set("failed", countInWords(failed.length));
  const { found, next } = failed ? pageOf(failed, query) : await pageById(looking, filter, query);
  const isGrouped = failed !== undefined && !query.has("after") && filter.alike === undefined;
  return {
    title: "Jobs",
    body: html`${stateLinks(filter, base, counts)}
${filterForm(filter, base, await namesOf(looking))}
${isGrouped && failed.length > 0 ? errorSections(visit, filter, failed) : none}
${bulk(visit, filter, found)}
${jobTable(visit, found, failed)}
${next ? html`<p><a href="${pathTo(base, "/jobs", { ...filter, after: next })}" rel="next">More</a></p>` : ""}`,
  };
};

/** Some jobs, and where the next page begins. Undefined: there is none. */
interface Part {
  readonly found: readonly FoundJob[];
  readonly next: string | undefined;
}

async function pageById(looking: OperateContext, filter: Filter, query: URLSearchParams): Promise<Part> {
  const given = asked(query, "after");
  const after = given && /^\d{1,18}$/.test(given) ? given : undefined;
  const found = await jobsOf(looking, filter, { place: "id", after, most: MOST });
  return { found, next: found.length === MOST ? found.at(-1)?.id : undefined };
}

/** Of failed jobs the place is when one failed, and then its id. */
function pageOf(failed: readonly FailedJob[], query: URLSearchParams): Part {
  const [, ms, id] = /^(\d{1,15})-(\d{1,18})$/.exec(asked(query, "after") ?? "") ?? [];
  const isBehind = (one: FailedJob) =>
    Number(one.failedAt) < Number(ms) ||
    (Number(one.failedAt) === Number(ms) && BigInt(one.id) < BigInt(id ?? 0));
  const rest = ms === undefined ? failed : failed.filter(isBehind);
  const last = rest.length > MOST ? rest[MOST - 1] : undefined;
  return { found: rest.slice(0, MOST), next: last && `${Number(last.failedAt)}-${last.id}` };
}

const countInWords = (failed: number) => `${grouped(failed)}${failed < MOST_FAILED ? "" : "+"}`;

/** The failed jobs by error, each with its number and the way to all of them. */
function errorSections({ base, rights }: Visit, filter: Filter, failed: readonly FailedJob[]): Markup {
  const kinds = [...Map.groupBy(failed, ({ errorPattern }) => errorPattern ?? "")]
    .map(([pattern, its]) => ({ pattern, its, first: its[0] as FailedJob }))
    .toSorted((one, other) => other.its.length - one.its.length);
  const most = kinds[0]?.its.length ?? 0;
  const looked = failed.length < MOST_FAILED ? "" : `, of the ${grouped(MOST_FAILED)} that were added last`;
  const shown =
    kinds.length > MOST_ERRORS ? `, the ${MOST_ERRORS} most frequent of ${grouped(kinds.length)}` : "";
  const withAlike = (path: string, alike: string) => pathTo(base, path, { ...filter, alike });
  return html`<h2>By error</h2>
${table<(typeof kinds)[number]>(
  `Errors that differ only in numbers and ids are one${shown}${looked}`,
  kinds.slice(0, MOST_ERRORS),
  [
    {
      title: "Error",
      cell: ({ pattern, its, first }) => {
        const says = its.length === 1 ? (first.lastError ?? "") : pattern;
        return pattern === "" ? "none" : html`<a href="${withAlike("/jobs", pattern)}">${says}</a>`;
      },
    },
    {
      title: "Jobs",
      isNumber: true,
      cell: ({ its }) => html`${grouped(its.length)}${compared(its.length, most)}`,
    },
    { title: "The last failed", cell: ({ first }) => moment(first.failedAt) },
    ...(rights.role === "operator"
      ? [
          {
            title: "Do",
            cell: ({ pattern }: { pattern: string }) =>
              pattern === ""
                ? null
                : html`<a class="whole" href="${withAlike("/bulk/retry", pattern)}">Retry these…</a>`,
          },
        ]
      : []),
  ],
  "",
)}
<h2>Job by job</h2>`;
}

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
${named("policy", "Policy", names.policies, filter.policy)}
<label>Partition <input name="${WRITTEN}" value="${keyAsWritten(filter.partition) ?? ""}" placeholder="${IF_EMPTY}"></label>
${named("task", "Task", names.tasks, filter.task)}
${text("queue", "Queue")}
${text("key", "Job key")}
${choice("added", "Added within", Object.keys(BACK), filter.added)}
${text("error", "Error contains")}
${filter.alike === undefined ? none : text("alike", "Errors like, # is a number or an id")}
${hidden({ state: filter.state })}
<button>Show</button>
</form>`;
}

/** What operators can do with many jobs at once: with those that they tick in the table, or with all that the filter matches. */
function bulk({ base, rights }: Visit, filter: Filter, found: readonly FoundJob[]): Markup {
  if (rights.role !== "operator" || found.length === 0) return none;
  const verbs = Object.keys(BULK) as BulkName[];
  const ticked = verbs.filter(
    (verb) =>
      ACTIONS[verb].target.includes("ids") && found.some(({ state }) => BULK[verb].states.includes(state)),
  );
  const all = verbs.filter((verb) => isOffered(BULK[verb], filter));
  // the empty one says that jobs were meant, if none is ticked
  return html`<form class="actions" method="get" id="${TICKED}"><input type="hidden" name="ids" value="">
${ticked.map(
  (verb) =>
    html`<button formaction="${base}/act/${verb}"${ENDS.has(verb) ? html` class="ends"` : ""}>${titleOf(ACTIONS[verb])} ticked</button>`,
)}
${all.map((verb) => actionLink(verb, pathTo(base, `/bulk/${verb}`, filter), `${titleOf(ACTIONS[verb])} all that match`))}
</form>`;
}

/** The form to which the boxes in the table belong. */
const TICKED = "ticked";

/** `failed`: it is a page of these. */
function jobTable(
  { base, rights }: Visit,
  found: readonly FoundJob[],
  failed: readonly FailedJob[] | undefined,
): Markup {
  const failedAt = new Map(failed?.map((job) => [job.id, job.failedAt]));
  const looked =
    failed?.length === MOST_FAILED ? `, of the ${grouped(MOST_FAILED)} that were added last` : "";
  const when: Column<FoundJob> = failed
    ? { title: "Failed", cell: ({ id }) => moment(failedAt.get(id)) }
    : // Graphile Worker gives a job a time also after its last attempt
      { title: "Due", cell: (row) => (row.state === "failed" ? "never" : moment(row.runAt)) };
  return table(
    failed
      ? `Those that failed last first${looked}, at most ${MOST} on a page`
      : `In the order of their ids, at most ${MOST} on a page`,
    found,
    [
      ...(rights.role === "operator"
        ? [
            {
              title: "Tick",
              cell: ({ id }: FoundJob) =>
                html`<input type="checkbox" name="ids" value="${id}" form="${TICKED}" aria-label="Job ${id}">`,
            },
          ]
        : []),
      { title: "Id", cell: (row) => jobLink(base, row.id) },
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
      when,
      { title: "Attempts", cell: (row) => `${grouped(row.attempts)} of ${grouped(row.maxAttempts)}` },
      { title: "Error", cell: (row) => firstLine(row.lastError) },
    ],
    "No job matches.",
  );
}
