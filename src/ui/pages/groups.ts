import { type GroupJob, type OpenGroup, groups as openGroups } from "../../operate/groups.ts";
import { OUTCOMES } from "../../operate/outcomes.ts";
import { anId } from "../../operate/verb.ts";
import { firstLine } from "../../operate/words.ts";
import { jobBadge } from "../parts/badge.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { compared } from "../parts/gauge.ts";
import { groupLink, jobLink, partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { asked, type Page } from "./visit.ts";

const MOST = 50;

/** The job groups whose callback has not been added yet. */
export const groups: Page = async ({ looking, base, query }) => {
  const found = await openGroups(looking, { after: idIn(query, "after"), limit: MOST });
  const next = found.length === MOST ? found.at(-1)?.id : undefined;
  return {
    title: "Job groups",
    body: html`${groupTable(found, base)}
${next ? html`<p><a href="${pathTo(base, "/groups", { after: next })}" rel="next">More</a></p>` : ""}`,
  };
};

/** One group: how its jobs have ended, and those that are left. */
export const group: Page = async ({ looking, base, query }) => {
  const id = idIn(query, "group");
  if (id === undefined) return null;
  const [it] = await openGroups(looking, { group: id, after: idIn(query, "after"), limit: MOST });
  if (it === undefined) return null;
  const { jobs = [], oldestJobId } = it;
  const next = jobs.length === MOST ? jobs.at(-1)?.id : undefined;
  const facts: readonly Fact[] = [
    ["callback", callbackOf(it, base)],
    ["added", moment(it.createdAt)],
    ["jobs", grouped(it.total)],
    ...OUTCOMES.map((outcome): Fact => [outcome, it[outcome] > 0 ? grouped(it[outcome]) : null]),
    ["left", grouped(it.jobsLeft)],
    ["oldest of them", oldestJobId === null ? null : jobLink(base, oldestJobId)],
    ["error of the callback", it.error],
  ];
  return {
    title: `Job group ${id}`,
    trail: [["Job groups", `${base}/groups`]],
    body: html`<p class="sentence">${sentenceOf(it)}</p>
${factList(facts)}
<h2>The jobs that are left</h2>
${jobTable(jobs, base)}
${next ? html`<p><a href="${pathTo(base, "/group", { group: id, after: next })}" rel="next">More</a></p>` : ""}`,
  };
};

function idIn(query: URLSearchParams, name: string): string | undefined {
  const given = asked(query, name);
  return anId.accepts(given) ? given : undefined;
}

function sentenceOf({ total, jobsLeft, callback, error }: OpenGroup): string {
  if (error !== null) return `The callback ${callback} could not be added. The next sweep tries again.`;
  return `${grouped(total - jobsLeft)} of ${grouped(total)} jobs have ended. The callback ${callback} is added when all have.`;
}

function callbackOf({ callback, policy }: OpenGroup, base: string): Markup {
  return policy === null ? html`${callback}` : html`${callback}, of policy ${policyLink(base, policy)}`;
}

function groupTable(found: readonly OpenGroup[], base: string): Markup {
  return table(
    `In the order of their ids, at most ${MOST} on a page`,
    found,
    [
      { title: "Id", cell: ({ id }) => groupLink(base, id) },
      { title: "Callback", cell: (row) => callbackOf(row, base) },
      { title: "Jobs", isNumber: true, cell: ({ total }) => grouped(total) },
      {
        title: "Ended",
        isNumber: true,
        cell: ({ total, jobsLeft }) => html`${grouped(total - jobsLeft)}${compared(total - jobsLeft, total)}`,
      },
      { title: "Succeeded", isNumber: true, cell: ({ succeeded }) => grouped(succeeded) },
      { title: "Failed", isNumber: true, cell: ({ failed }) => grouped(failed) },
      { title: "Added", cell: ({ createdAt }) => moment(createdAt) },
      {
        title: "Oldest left",
        isNumber: true,
        cell: ({ oldestJobId }) => (oldestJobId === null ? null : jobLink(base, oldestJobId)),
      },
      { title: "Error of the callback", cell: ({ error }) => error },
    ],
    "No job group is open. Jobs that are added in one call with a callback are one.",
  );
}

function jobTable(found: readonly GroupJob[], base: string): Markup {
  return table(
    `In the order of their ids, at most ${MOST} on a page`,
    found,
    [
      { title: "Id", cell: ({ id }) => jobLink(base, id) },
      { title: "State", cell: ({ state }) => jobBadge(state ?? "ended unseen") },
      { title: "Task", cell: ({ taskIdentifier }) => taskIdentifier },
      { title: "Policy", cell: ({ policy }) => (policy === null ? null : policyLink(base, policy)) },
      {
        title: "Partition",
        cell: ({ policy, partition }) =>
          policy === null || partition === null ? null : partitionLink(base, policy, partition),
      },
      { title: "Due", cell: ({ state, runAt }) => (state === "failed" ? "never" : moment(runAt)) },
      { title: "Attempts", isNumber: true, cell: ({ attempts }) => grouped(attempts) },
      { title: "Error", cell: ({ lastError }) => firstLine(lastError) },
    ],
    "No job is left.",
  );
}
