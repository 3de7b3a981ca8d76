import { some } from "../../counted.ts";
import { limits } from "../../operate/limits.ts";
import { type PolicyStatus, status, type UndeclaredPolicy } from "../../operate/status.ts";
import { parameter, rowsOf } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import { actionLinks } from "../parts/action-links.ts";
import { reasonBadge } from "../parts/badge.ts";
import { type Card, cardList, oldestDueCard } from "../parts/cards.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { compared } from "../parts/gauge.ts";
import { partitionLink, pathTo } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { HOUR, type Period, periodLinks, periodOf } from "../parts/period.ts";
import { stateBadge } from "../parts/policy-table.ts";
import { table } from "../parts/table.ts";
import { waysOut } from "../parts/undeclared-table.ts";
import { grouped, roughly } from "../parts/words.ts";
import { type Trend, trendHint, trendInWords, trendOf } from "./backlog.ts";
import { capCharts, capsSince } from "./caps.ts";
import { declaredFacts, definitionsOf, differenceTables } from "./definitions.ts";
import { type Figures, figuresNow } from "./figures.ts";
import { gateWaits, gateWaitTable } from "./gate-waits.ts";
import { charts, happenedIn, reasonTable, shadowTable } from "./minutes.ts";
import { partitionWaits, worstPartitions } from "./partition-waits.ts";
import { gateTable, type Limiter } from "./policy-gates.ts";
import { asked, type Found, type Page, type Visit } from "./visit.ts";

const MOST = 20;

interface Waiting {
  readonly partition: string;
  readonly staged: number;
  readonly inFlight: number;
  readonly reason: string;
  readonly blockedOn: string | null;
}

const NAMED = `where policy = ${parameter(1, "text")}`;
const SHARED = `${NAMED} and scope_key = '' order by gate`;
const BUSIEST = `${NAMED} and reason is not null and staged > 0 order by staged desc, partition limit ${parameter(2, "int")}`;

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
  const waiting = await rowsOf<Waiting>(looking, "partitions", BUSIEST, [name, MOST]);
  const set = await limits(looking, { policy: name });
  const definitions = await definitionsOf(looking, name);
  const definition = definitions.find((one) => one.inForce)?.definition;
  const trend = trendOf(minutes, found.staged);
  const hint = trendHint(trend, found.staged);
  return {
    title: name,
    trail: [["Policies", `${base}/policies`]],
    body: html`${hint ? html`<ul class="hints">${hint}</ul>` : none}${cardList(stateCards(found, figures, trend, base))}
${factList([...stateFacts(found, figures), ...declaredFacts(definitions)])}
${actionLinks(visit, {
  target: { policy: name },
  names: [found.paused ? "resume" : "pause", "set-limit", "retry"],
  more: ["admit", "remove", "cancel"],
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
<section><h2>Why partitions kept due jobs</h2>
${reasonTable(shown, period)}
${shadowTable(shown, period)}</section>
</div>
${definition ? await waitSections(visit, definition, period) : none}
<details><summary>Definition in force</summary><pre>${JSON.stringify(definition ?? {}, null, 2)}</pre></details>`,
  };
};

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
    ["last pass", ageOf(figures.sum("last_pass_age_seconds"))],
    ["ended in workers without the package", grouped(it.endedElsewhere)],
  ];
}

function ageOf(seconds: number | null): string {
  return seconds === null ? "none yet" : `${roughly(seconds)} ago`;
}

function waitingTable(waiting: readonly Waiting[], name: string, base: string): Markup {
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
