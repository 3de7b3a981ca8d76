import { parameter } from "../../db/engine.ts";
import type { OperateContext } from "../../operate/call.ts";
import { spelled } from "../../operate/rows.ts";
import { JOB_STATES, type JobRow, rowsOf } from "../../operate/view-rows.ts";
import { ifGiven } from "../if-given.ts";
import { choice } from "../parts/choice.ts";
import { jobLink, partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import { asked, type Page, type Visit } from "./visit.ts";

const MOST = 50;
const [ERROR, QUEUE, KEY] = [parameter(4, "text"), parameter(5, "text"), parameter(6, "text")];
const [SINCE, AFTER, COUNT] = [parameter(7, "time"), parameter(8, "id"), parameter(9, "int")];

/** The condition of a page, for a view whose columns have these names. */
function whereOf({ error, key }: Readonly<Record<"error" | "key", string>>): string {
  return `${ifGiven(1, "policy")} and ${ifGiven(2, "partition")} and ${ifGiven(3, "task_identifier")}
    and (${ERROR} is null or pg_catalog.strpos(${error}, ${ERROR}) > 0) and (${QUEUE} is null or queue_name = ${QUEUE})
    and (${KEY} is null or ${key} = ${KEY}) and (${SINCE} is null or created_at >= ${SINCE})
    and (${AFTER} is null or id > ${AFTER})`;
}

const IN_ORDER = `order by id limit ${COUNT}`;
const STAGED = `where job_id is null and ${whereOf({ error: "error", key: "job_key" })} ${IN_ORDER}`;
const OTHERS = `where state <> 'staged' and ${ifGiven(10, "state")} and ${whereOf({ error: "last_error", key: "key" })} ${IN_ORDER}`;

/** How far back a page may go, by what the address says. */
const BACK = { "1 hour": 3_600_000, "1 day": 86_400_000, "7 days": 604_800_000 } as const;

interface Row extends JobRow {
  readonly stagedId: string | null;
}

const FILTERS = ["state", "policy", "partition", "task", "queue", "key", "error", "added"] as const;

type Filter = Readonly<Record<(typeof FILTERS)[number], string | undefined>>;

/** Jobs of all tasks, with a policy or without. */
export const jobs: Page = async (visit) => {
  const { looking, base, query } = visit;
  const filter = Object.fromEntries(FILTERS.map((name) => [name, asked(query, name)])) as Filter;
  const given = asked(query, "after");
  const after = given && /^\d{1,18}$/.test(given) ? given : undefined;
  const found = await pageOf(looking, filter, after);
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

/** Staged jobs and Graphile Worker's, each asked for by itself, in the order of their ids. */
async function pageOf(
  looking: OperateContext,
  filter: Filter,
  after: string | undefined,
): Promise<readonly Row[]> {
  const { state, policy, partition, task, error, queue, key, added } = filter;
  const back = added !== undefined && Object.hasOwn(BACK, added) ? BACK[added as keyof typeof BACK] : null;
  const since = back === null ? undefined : new Date(Date.now() - back);
  const values = [policy, partition, task, error, queue, key, since, after, MOST].map(
    (value) => value ?? null,
  );
  const { engine, withPgClient } = looking;
  const staged =
    state === undefined || state === "staged"
      ? await withPgClient((client) => engine.stagedPage<object>(client, STAGED, values))
      : [];
  const others =
    state === "staged" ? [] : await rowsOf<Row>(looking, "jobs", OTHERS, [...values, state ?? null]);
  return [...staged.map((row) => spelled<Row>(row)), ...others]
    .toSorted((one, other) => (BigInt(one.id) < BigInt(other.id) ? -1 : 1))
    .slice(0, MOST);
}

function filterForm(filter: Filter, base: string): Markup {
  const text = (name: keyof Filter, label: string) =>
    html`<label>${label} <input name="${name}" value="${filter[name] ?? ""}"></label>`;
  return html`<form method="get" action="${base}/jobs">
${choice("state", "State", JOB_STATES, filter.state)}
${text("policy", "Policy")}
${text("partition", "Partition")}
${text("task", "Task")}
${text("queue", "Queue")}
${text("key", "Job key")}
${choice("added", "Added within", Object.keys(BACK), filter.added)}
${text("error", "Error contains")}
<button>Show</button>
</form>`;
}

/** What operators can do with many jobs at once: with those on the page, or with all that the filter matches. */
function bulk({ base, rights }: Visit, filter: Filter, found: readonly Row[]): Markup {
  if (rights.role !== "operator") return none;
  const { state, policy, partition, error } = filter;
  const isKnown = [filter.task, filter.queue, filter.key, filter.added].every((value) => value === undefined);
  const failed = found.filter((row) => row.state === "failed").map(({ id }) => id);
  const waiting = found
    .filter((row) => row.state === "staged" || row.state === "parked")
    .flatMap(({ stagedId }) => stagedId ?? []);
  const links = [
    ...(failed.length > 0 ? [["retry", { ids: failed.join(",") }, `retry these ${failed.length}`]] : []),
    ...(waiting.length > 0 ? [["remove", { ids: waiting.join(",") }, `remove these ${waiting.length}`]] : []),
    // the verb knows no task, queue, key or time: with one in the filter it would bring back others too
    ...(state === "failed" && policy !== undefined && isKnown
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
