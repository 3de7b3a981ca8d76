import { some } from "../../counted.ts";
import type { OperateContext } from "../../operate/call.ts";
import { limits } from "../../operate/limits.ts";
import { type PolicyStatus, status, type UndeclaredPolicy } from "../../operate/status.ts";
import { parameter, rowsBy, rowsOf } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import { actionLinks } from "../parts/action-links.ts";
import { reasonBadge } from "../parts/badge.ts";
import { type Card, cardList, oldestDueCard } from "../parts/cards.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { findingHint } from "../parts/finding-hint.ts";
import { compared } from "../parts/gauge.ts";
import { jobLink, partitionLink, pathTo } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { HOUR, type Period, periodLinks, periodOf } from "../parts/period.ts";
import { stateBadge } from "../parts/policy-table.ts";
import { table } from "../parts/table.ts";
import { waysOut } from "../parts/undeclared-table.ts";
import { aMinute, grouped, moment, roughly } from "../parts/words.ts";
import { type Trend, trendHint, trendInWords, trendOf } from "./backlog.ts";
import { capCharts, capsSince } from "./caps.ts";
import { declaredFacts, definitionsOf, differenceTables } from "./definitions.ts";
import { type Figures, figuresNow } from "./figures.ts";
import { findingsOf } from "./findings.ts";
import { gateWaits, gateWaitTable } from "./gate-waits.ts";
import { charts, happenedIn, reasonTable, shadowTable } from "./minutes.ts";
import { partitionWaits, worstPartitions } from "./partition-waits.ts";
import { gateTable, type Limiter } from "./policy-gates.ts";
import { asked, type Found, type Page, type Visit } from "./visit.ts";

const MOST = 20;
const MOST_ADMITTED = 10;
const HEAD = 5;

/** A partition that waits with the most jobs, or was admitted most. */
interface Top {
  readonly partition: string;
  readonly staged: number;
  readonly inFlight: number;
  readonly reason: string | null;
  readonly blockedOn: string | null;
  readonly admittedTotal: number;
  readonly admitsAMinute: number | null;
  readonly lastAdmittedAt: Date | null;
  readonly waits: boolean;
  readonly admittedMost: boolean;
}

interface Staged {
  readonly id: string;
  readonly policy: string | null;
  readonly partition: string | null;
  readonly runAt: Date;
  readonly createdAt: Date;
}

const NAMED = `where policy = ${parameter(1, "text")}`;
const SHARED = `${NAMED} and scope_key = '' order by gate`;
/** An index has them by task, in this order. */
const SINCE = "greatest(run_at, created_at)";
const OLDEST = `where task_identifier = ${parameter(1, "text")} order by ${SINCE} limit ${parameter(2, "int")}`;

/** One policy: what it is doing, and what holds it back. */
export const policy: Page = async (visit) => {
  const { looking, base, query } = visit;
  const name = asked(query, "policy");
  if (name === undefined) return null;
  const { policies, undeclared } = await status(looking, { policy: name });
  const [found] = policies;
  if (!found) return undeclared[0] ? undeclaredPolicy(undeclared[0], base) : null;
  const period = periodOf(query);
  const { steps: minutes } = await happenedIn(looking, HOUR, name);
  const shown = period === HOUR ? minutes : (await happenedIn(looking, period, name)).steps;
  const figures = await figuresNow(looking, name);
  const shared = await rowsOf<Limiter>(looking, "limiters", SHARED, [name]);
  const top = await rowsBy<Top>(looking, (client) =>
    looking.engine.topPartitions(client, name, MOST, MOST_ADMITTED),
  );
  const waiting = mostFirst(
    top.filter(({ waits }) => waits),
    "staged",
  );
  const admitted = mostFirst(
    top.filter(({ admittedMost }) => admittedMost),
    "admittedTotal",
  );
  const set = await limits(looking, { policy: name });
  const definitions = await definitionsOf(looking, name);
  const definition = definitions.find((one) => one.inForce)?.definition;
  const staged = await oldestStaged(looking, name, definition?.tasks ?? []);
  const trend = trendOf(minutes, found.staged);
  const findings = (await findingsOf(visit.acting, name)) ?? [];
  const hints = [
    ...[trendHint(trend, found.staged)].filter((hint) => hint !== null),
    ...findings.map((one) => findingHint(one, true)),
  ];
  return {
    title: name,
    trail: [["Policies", `${base}/policies`]],
    body: html`${hints.length > 0 ? html`<ul class="hints">${hints}</ul>` : none}${cardList(stateCards(found, figures, trend, base))}
${factList([...stateFacts(found, figures), ...declaredFacts(definitions)])}
${actionLinks(visit, {
  target: { policy: name },
  names: found.sharedBy ? ["set-limit"] : [found.paused ? "resume" : "pause", "set-limit", "retry"],
  more: found.sharedBy ? [] : ["admit", "remove", "cancel"],
})}
${differenceTables(definitions)}
<h2>The last ${period.words}</h2>
${periodLinks(base, "/policy", { policy: name }, period)}
${charts(shown, period, found.staged)}
<h2>Gates</h2>
${gateTable({ visit, name, figures, shared, set, gates: definition?.gates ?? [] })}
<div class="pair">
<section><h2>Partitions that wait</h2>
${waitingTable(waiting, name, base)}
<p><a href="${pathTo(base, "/partitions", { policy: name })}">All partitions</a></p></section>
<section><h2>Partitions that were admitted most</h2>
${admittedTable(admitted, name, base)}
<p><a href="${pathTo(base, "/partitions", { policy: name, sort: "most admitted" })}">All, those admitted most first</a></p></section>
<section><h2>Staged jobs</h2>
${stagedTable(staged, name, base)}
<p><a href="${pathTo(base, "/jobs", { policy: name, state: "staged" })}">All staged jobs</a></p></section>
<section><h2>Why partitions kept due jobs</h2>
${reasonTable(shown, period)}
${shadowTable(shown, period)}</section>
</div>
${definition ? await waitSections(visit, definition, period) : none}
<details><summary>Definition in force</summary><pre>${JSON.stringify(definition ?? {}, null, 2)}</pre></details>`,
  };
};

function mostFirst(found: readonly Top[], by: "staged" | "admittedTotal"): readonly Top[] {
  return found.toSorted((one, other) => other[by] - one[by] || (one.partition < other.partition ? -1 : 1));
}

/** The jobs that were due first, those that come later last. */
async function oldestStaged(
  looking: OperateContext,
  policy: string,
  tasks: readonly string[],
): Promise<readonly Staged[]> {
  const found: Staged[] = [];
  for (const task of tasks)
    found.push(
      ...(await rowsBy<Staged>(looking, (client) => looking.engine.stagedPage(client, OLDEST, [task, HEAD]))),
    );
  const since = ({ runAt, createdAt }: Staged) => Math.max(runAt.getTime(), createdAt.getTime());
  return found
    .filter((its) => its.policy === policy) // a task may have another one by now
    .toSorted((one, other) => since(one) - since(other))
    .slice(0, HEAD);
}

/** All that is known of a policy that nobody declared. */
function undeclaredPolicy({ policy: name, staged }: UndeclaredPolicy, base: string): Found {
  return {
    title: name,
    trail: [["Policies", `${base}/policies`]],
    body: html`<p class="sentence">Nobody declared this policy, and <a href="${pathTo(base, "/jobs", { policy: name })}">${some(staged, "job")}</a> ${staged === 1 ? "waits" : "wait"} for it. Nobody admits them.</p>
${waysOut(name)}`,
  };
}

/** How long its jobs waited, for which gates and in which partitions, and what its adaptive gates have learnt. */
async function waitSections(
  { looking, base }: Visit,
  definition: PolicyDefinition,
  period: Period,
): Promise<Markup> {
  if (definition.gates.length === 0 && !definition.history) return none;
  const waits = await gateWaits(looking, definition, period);
  const byPartition = definition.history ? await partitionWaits(looking, definition.name, period) : [];
  const caps = await capsSince(looking, definition, period);
  return html`<div class="pair">
${definition.gates.length > 0 ? html`<section><h2>How long jobs waited for each gate</h2>${gateWaitTable(waits, period)}</section>` : none}
<section>${worstPartitions(byPartition, definition.name, base, period)}</section>
</div>
${capCharts(caps, period)}`;
}

/** What waits and runs, and where that goes. */
function stateCards(it: PolicyStatus, figures: Figures, trend: Trend, base: string): readonly Card[] {
  return [
    {
      value: grouped(it.staged),
      name: "waiting",
      more: trendInWords(trend),
      to: pathTo(base, "/jobs", { policy: it.policy, state: "staged" }),
    },
    oldestDueCard(it.oldestDue, base),
    { value: grouped(it.inFlight), name: "in flight" },
    {
      value: grouped(figures.sum("admissible_jobs")),
      name: "could go now, if workers were free",
    },
    {
      value: grouped(it.partitions),
      name: "partitions",
      to: pathTo(base, "/partitions", { policy: it.policy }),
    },
  ];
}

function stateFacts(it: PolicyStatus, figures: Figures): readonly Fact[] {
  return [
    ["state", stateBadge(it)],
    ...(it.sharedBy ? [["a limit shared by", it.sharedBy.join(", ")] as const] : []),
    ["last pass", ageOf(figures.sum("last_pass_age_seconds"))],
    ...(it.endedElsewhere > 0
      ? [["ended in workers without the package", grouped(it.endedElsewhere)] as const]
      : []),
  ];
}

function ageOf(seconds: number | null): string {
  return seconds === null ? "none yet" : `${roughly(seconds)} ago`;
}

function waitingTable(waiting: readonly Top[], name: string, base: string): Markup {
  const most = waiting[0]?.staged ?? 0;
  return table(
    `Those with the most staged jobs, at most ${MOST}`,
    waiting,
    [
      { title: "Partition", cell: ({ partition }) => partitionLink(base, name, partition) },
      { title: "Waits for", cell: ({ reason, blockedOn }) => reasonBadge(reason, blockedOn) },
      {
        title: "Staged",
        isNumber: true,
        cell: ({ staged }) => html`${grouped(staged)}${compared(staged, most)}`,
      },
      { title: "In flight", isNumber: true, cell: ({ inFlight }) => grouped(inFlight) },
    ],
    "No partition waits for anything.",
  );
}

function admittedTable(admitted: readonly Top[], name: string, base: string): Markup {
  const most = admitted[0]?.admittedTotal ?? 0;
  return table(
    `Since each was made, at most ${MOST_ADMITTED}`,
    admitted,
    [
      { title: "Partition", cell: ({ partition }) => partitionLink(base, name, partition) },
      {
        title: "Admitted",
        isNumber: true,
        cell: ({ admittedTotal }) => html`${grouped(admittedTotal)}${compared(admittedTotal, most)}`,
      },
      {
        title: "A minute, lately",
        isNumber: true,
        cell: ({ admitsAMinute }) => (admitsAMinute === null ? null : aMinute(admitsAMinute)),
      },
      { title: "Last", cell: ({ lastAdmittedAt }) => moment(lastAdmittedAt) },
    ],
    "None was admitted yet.",
  );
}

function stagedTable(staged: readonly Staged[], name: string, base: string): Markup {
  return table(
    `Those that were due first, at most ${HEAD}`,
    staged,
    [
      { title: "Job", cell: ({ id }) => jobLink(base, id) },
      {
        title: "Partition",
        cell: ({ partition }) => (partition === null ? null : partitionLink(base, name, partition)),
      },
      { title: "Due", cell: ({ runAt }) => moment(runAt) },
      { title: "Added", cell: ({ createdAt }) => moment(createdAt) },
    ],
    "No job waits in staging.",
  );
}
