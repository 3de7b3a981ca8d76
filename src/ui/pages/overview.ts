import { some } from "../../counted.ts";
import type { Finding } from "../../operate/doctor.ts";
import type { Answer } from "../../operate/explain.ts";
import { limits, type Override } from "../../operate/limits.ts";
import { longestWaiting } from "../../operate/longest-waiting.ts";
import {
  type OldestDue,
  type PolicyStatus,
  status,
  type UndeclaredPolicy,
  type WaitingFor,
  type WorkerStatus,
} from "../../operate/status.ts";
import { stops } from "../../operate/stops.ts";
import { limitedBy } from "../../operate/words.ts";
import { reasonBadge } from "../parts/badge.ts";
import { type Card, cardList, oldestDueCard } from "../parts/cards.ts";
import { findingHint } from "../parts/finding-hint.ts";
import { compared, gauge } from "../parts/gauge.ts";
import { partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { HOUR, periodLinks, periodOf } from "../parts/period.ts";
import { policyTable } from "../parts/policy-table.ts";
import { stopTable } from "../parts/stop-table.ts";
import { type Part, strip } from "../parts/strip.ts";
import { table } from "../parts/table.ts";
import { undeclaredTable } from "../parts/undeclared-table.ts";
import { grouped, lasting, moment } from "../parts/words.ts";
import { type Trend, trendHint, trendInWords, trendOf } from "./backlog.ts";
import { type Figures, figuresNow } from "./figures.ts";
import { findingsOf, UNASKED } from "./findings.ts";
import {
  type Counted,
  charts,
  eachMinute,
  type Happened,
  happenedIn,
  type Minute,
  reasonTable,
} from "./minutes.ts";
import type { Page } from "./visit.ts";

const HINTS = 5;
const WAITING = 5;
/** Over how many minutes failures are counted: in one there may be none. */
const BACK = 15;
/** Limits that end within so long are listed: somebody has to decide whether they go on. */
const SOON_MS = 60 * 60_000;

/** How everything is. */
export const overview: Page = async ({ looking, acting, base, query }) => {
  const { policies, oldestDue, undeclared, workers } = await status(looking);
  const figures = await figuresNow(looking);
  const hour = await happenedIn(looking, HOUR);
  const period = periodOf(query);
  const shown = period === HOUR ? hour : await happenedIn(looking, period);
  const inForce = await stops(looking);
  const ending = endingSoon(await limits(looking));
  const waiting = await longestWaiting(looking, WAITING);
  const findings = await findingsOf(acting);
  const staged = policies.reduce((total, one) => total + one.staged, 0);
  const trend = trendOf(hour.steps, staged);
  return {
    title: "Overview",
    body: html`${cardList(cardsOf(staged, oldestDue, figures, trend, policies, workers, hour.steps, base))}
${hints(findings, [trendHint(trend, staged), undeclaredHint(undeclared, findings)], base)}
<h2>Policies</h2>
${await policyTable(looking, policies, figures, base)}
${undeclaredTable(undeclared, base)}
<h2>The last ${period.words}</h2>
${periodLinks(base, "/", {}, period)}
${strip(partsOf(shown, policies))}
${charts(shown.steps, period, staged)}
<h2>Waiting for longest</h2>
${waitingTable(waiting, base)}
<div class="pair">
<section><h2>Why jobs wait now</h2>
${reasonsNow(waitingFor(policies), base)}</section>
<section><h2>Why partitions kept due jobs</h2>
${reasonTable(shown.steps, period)}</section>
<section><h2>Stopped by name</h2>
${stopTable(inForce, base)}</section>
${endingTable(ending, base)}
</div>`,
  };
};

/** What to see first: what waits, what runs, how fast it goes, and what fails. */
function cardsOf(
  staged: number,
  oldestDue: OldestDue | null,
  figures: Figures,
  trend: Trend,
  policies: readonly PolicyStatus[],
  workers: readonly WorkerStatus[],
  minutes: readonly Minute[],
  base: string,
): readonly Card[] {
  const alive = workers.filter((one) => one.alive);
  const slots = alive.reduce((total, one) => total + one.slots, 0);
  const inFlight = policies.reduce((total, one) => total + one.inFlight, 0);
  const pace = (whats: readonly Counted[], back: number) =>
    whats.reduce((sum, what) => sum + eachMinute(minutes, what, back), 0);
  const failed = Math.round(pace(["failed"], BACK) * BACK);
  const ended = Math.round(pace(["succeeded", "failed"], BACK) * BACK);
  return [
    {
      value: grouped(staged),
      name: "waiting",
      more: trendInWords(trend),
      to: pathTo(base, "/jobs", { state: "staged" }),
    },
    oldestDueCard(oldestDue, base),
    {
      value: grouped(inFlight),
      bar: gauge(inFlight, slots),
      name: "in flight",
      more: `for ${some(slots, "slot")} of ${some(alive.length, "worker pool")} alive`,
      to: pathTo(base, "/workers"),
    },
    {
      value: grouped(Math.round(pace(["admitted"], 1))),
      name: "admitted in the last minute",
      more: `${grouped(Math.round(pace(["admitted"], BACK)))} a minute over ${BACK}; ${grouped(figures.sum("admissible_jobs"))} more could go, if workers were free`,
    },
    {
      value: grouped(failed),
      name: `attempts failed in ${BACK} minutes`,
      more:
        ended === 0
          ? "none ended"
          : `${grouped(Math.round((failed / ended) * 1000) / 10)} % of ${grouped(ended)} that ended`,
      to: pathTo(base, "/jobs", { state: "failed" }),
    },
  ];
}

/** How long jobs of all policies took in the period of the charts, what passes took, and how many partitions there are. */
function partsOf({ whole }: Happened, policies: readonly PolicyStatus[]): readonly Part[] {
  const time = (name: string, of: "wait" | "lag" | "run"): Part => {
    const [half, most, longest] = (["P50", "P95", "Max"] as const).map((which) => {
      const seconds = whole?.[`${of}${which}Seconds`] ?? null;
      return seconds === null ? "–" : lasting(seconds);
    });
    return [name, `${most}`, `half ${half}, longest ${longest}`];
  };
  const passes = Number(whole?.passes ?? 0);
  const mean = passes === 0 ? "–" : lasting((whole?.passSeconds ?? 0) / passes);
  const partitions = policies.reduce((total, one) => total + one.partitions, 0);
  const waiting = waitingFor(policies).reduce((total, one) => total + one.partitions, 0);
  return [
    time("from due to admitted, 95\u00a0%", "wait"),
    time("from admitted to started, 95\u00a0%", "lag"),
    time("run time, 95\u00a0%", "run"),
    ["passes that found work", grouped(passes), `${mean} each, on average`],
    ["partitions", grouped(partitions), `${grouped(waiting)} with jobs that wait`],
  ];
}

function endingSoon(found: readonly Override[]): readonly Override[] {
  const soon = Date.now() + SOON_MS;
  const endOf = ({ until }: Override) => until?.getTime() ?? Number.POSITIVE_INFINITY;
  return found.filter((one) => endOf(one) < soon).toSorted((one, other) => endOf(one) - endOf(other));
}

function endingTable(ending: readonly Override[], base: string): Markup {
  if (ending.length === 0) return none;
  return html`<section><h2>Limits that end within the hour</h2>
${table(
  "Then the policies' own numbers apply again",
  ending,
  [
    { title: "Policy", cell: ({ policy }) => policyLink(base, policy) },
    { title: "Gate", cell: ({ gate }) => gate },
    { title: "For", cell: limitedBy },
    { title: "Until", cell: ({ until }) => moment(until) },
    { title: "By", cell: ({ by }) => by },
    { title: "Reason", cell: ({ reason }) => reason },
  ],
  "",
)}</section>`;
}

function waitingTable(waiting: readonly Answer[], base: string): Markup {
  return table(
    "The partitions of the jobs that have been due for longest: since when the next job is due, and why it waits",
    waiting,
    [
      { title: "Policy", cell: ({ policy }) => (policy === undefined ? null : policyLink(base, policy)) },
      {
        title: "Partition",
        cell: ({ policy, partition }) =>
          policy !== undefined && typeof partition === "string"
            ? partitionLink(base, policy, partition)
            : null,
      },
      { title: "Due", cell: ({ runAt }) => moment(runAt) },
      {
        title: "Waits for",
        cell: ({ reason, gate }) => reasonBadge(reason, gate),
      },
      { title: "Until", cell: ({ nextAt }) => moment(nextAt) },
    ],
    "No partition waits.",
  );
}

/** What partitions of all policies wait for. */
function waitingFor(policies: readonly PolicyStatus[]): readonly WaitingFor[] {
  const byReason = Map.groupBy(
    policies.flatMap(({ waiting }) => waiting),
    ({ reason }) => reason,
  );
  const sum = (its: readonly WaitingFor[], what: "partitions" | "jobs") =>
    its.reduce((total, one) => total + one[what], 0);
  return [...byReason]
    .map(([reason, its]) => ({ reason, partitions: sum(its, "partitions"), jobs: sum(its, "jobs") }))
    .toSorted((one, other) => other.partitions - one.partitions);
}

/** Each reason leads to the partitions that have it. */
function reasonsNow(found: readonly WaitingFor[], base: string): Markup {
  const most = found[0]?.partitions ?? 0;
  return table(
    "Partitions with staged jobs, by what they wait for",
    found,
    [
      {
        title: "Reason",
        cell: ({ reason }) => {
          if (reason === "none") return "In line";
          if (reason === "not_due") return reasonBadge(reason);
          return html`<a href="${pathTo(base, "/partitions", { reason })}">${reasonBadge(reason)}</a>`;
        },
      },
      {
        title: "Partitions",
        isNumber: true,
        cell: ({ partitions }) => html`${grouped(partitions)}${compared(partitions, most)}`,
      },
      { title: "Jobs", isNumber: true, cell: ({ jobs }) => grouped(jobs) },
    ],
    "No job waits in staging.",
  );
}

/** The doctor says so itself, unless nobody may ask, or a worker has the policy and has not declared it yet. */
function undeclaredHint(
  undeclared: readonly UndeclaredPolicy[],
  findings: readonly Finding[] | null,
): Markup | null {
  if (undeclared.length === 0 || findings?.some(({ id }) => id === "orphaned")) return null;
  const jobs = undeclared.reduce((sum, { staged }) => sum + staged, 0);
  return html`<li class="warn"><span class="mark">warning</span> ${some(jobs, "job")} ${jobs === 1 ? "waits" : "wait"} for <a href="#undeclared">policies that nobody declared</a>.</li>`;
}

function hints(
  findings: readonly Finding[] | null,
  others: readonly (Markup | null)[],
  base: string,
): Markup {
  const found = findings ?? [];
  const unasked = findings === null ? html`<li>${UNASKED}</li>` : null;
  const first = [...others, unasked].filter((one) => one !== null);
  if (found.length + first.length === 0)
    return html`<p class="good verdict"><span class="mark">✓</span> Nothing is wrong.</p>`;
  const more = found.length - HINTS;
  const list = found.slice(0, HINTS).map((one) => findingHint(one));
  return html`<ul class="hints">${first}${list}</ul>${
    found.length > 0
      ? html`<p><a href="${base}/health">${more > 0 ? `${more} more, and what mends them` : "What mends that"}</a></p>`
      : none
  }`;
}
