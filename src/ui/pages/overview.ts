import { some } from "../../counted.ts";
import type { Finding } from "../../operate/doctor.ts";
import type { Answer } from "../../operate/explain.ts";
import { keyInWords } from "../../operate/gate-words.ts";
import { limits, type Override } from "../../operate/limits.ts";
import { longestWaiting } from "../../operate/longest-waiting.ts";
import {
  type OldestDue,
  type PolicyStatus,
  status,
  type UndeclaredPolicy,
  type WorkerStatus,
} from "../../operate/status.ts";
import { stops } from "../../operate/stops.ts";
import { reasonBadge } from "../parts/badge.ts";
import { type Card, cardList, oldestDueCard } from "../parts/cards.ts";
import { compared } from "../parts/gauge.ts";
import { partitionLink, pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { HOUR, type Period, periodLinks, periodOf } from "../parts/period.ts";
import { policyTable } from "../parts/policy-table.ts";
import { stopTable } from "../parts/stop-table.ts";
import { table } from "../parts/table.ts";
import { undeclaredTable } from "../parts/undeclared-table.ts";
import { grouped, lasting, moment } from "../parts/words.ts";
import { drainInWords, inWords, type Trend, trendHint, trendOf } from "./backlog.ts";
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
    body: html`${hints(findings, [trendHint(trend, staged), undeclaredHint(undeclared, findings)], base)}
${cardList([...waitCards(staged, oldestDue, figures, trend, base), ...flightCards(policies, workers), ...paceCards(hour.steps, base), ...timeCards(shown, period)])}
<h2>The last ${period.words}</h2>
${periodLinks(base, "/", {}, period)}
${charts(shown.steps, period)}
<h2>Policies</h2>
${await policyTable(looking, policies, figures, base)}
${undeclaredTable(undeclared, base)}
<h2>Waiting for longest</h2>
${waitingTable(waiting, base)}
<div class="pair">
<section><h2>Why jobs wait now</h2>
${reasonsNow(figures, base)}</section>
<section><h2>Why partitions kept due jobs</h2>
${reasonTable(shown.steps, period)}</section>
<section><h2>Stopped by name</h2>
${stopTable(inForce, base)}</section>
${endingTable(ending, base)}
</div>`,
  };
};

/** What waits, and where that goes. */
function waitCards(
  staged: number,
  oldestDue: OldestDue | null,
  figures: Figures,
  trend: Trend,
  base: string,
): readonly Card[] {
  const admissible = figures.sum("admissible_jobs");
  return [
    {
      value: grouped(staged),
      name: "wait in staging",
      more: `${grouped(admissible)} could go now, if workers were free`,
      to: pathTo(base, "/jobs", { state: "staged" }),
    },
    oldestDueCard(oldestDue, base),
    {
      value: inWords(trend),
      name: "the backlog, over 15 minutes",
      more: `until it is gone, at that pace: ${drainInWords(trend)}`,
    },
  ];
}

/** What is in flight, and who may run it. */
function flightCards(policies: readonly PolicyStatus[], workers: readonly WorkerStatus[]): readonly Card[] {
  const alive = workers.filter((one) => one.alive);
  const slots = alive.reduce((total, one) => total + one.slots, 0);
  return [
    {
      value: grouped(policies.reduce((total, { inFlight }) => total + inFlight, 0)),
      name: "in flight",
      more: `${some(alive.length, "worker pool")} alive, with ${some(slots, "slot")}`,
    },
  ];
}

/** How much goes, and how fast. */
function paceCards(minutes: readonly Minute[], base: string): readonly Card[] {
  const pace = (whats: readonly Counted[], back: number) =>
    grouped(Math.round(whats.reduce((sum, what) => sum + eachMinute(minutes, what, back), 0)));
  const ended = ["succeeded", "failed"] as const;
  const failed = Math.round(eachMinute(minutes, "failed", BACK) * BACK);
  return [
    {
      value: pace(["admitted"], 1),
      name: "admitted in the last minute",
      more: `${pace(["admitted"], 5)} over 5 minutes, ${pace(["admitted"], BACK)} over ${BACK}`,
    },
    {
      value: pace(ended, 1),
      name: "ended in the last minute",
      more: `${pace(ended, BACK)} over ${BACK} minutes; ${grouped(failed)} failed in all`,
      to: pathTo(base, "/jobs", { state: "failed" }),
    },
  ];
}

/** How long jobs of all policies took, in the period of the charts below. */
function timeCards({ whole }: Happened, { words }: Period): readonly Card[] {
  const time = (name: string, of: "wait" | "lag"): Card => {
    const [most, half, longest] = (["P95", "P50", "Max"] as const).map((which) => {
      const seconds = whole?.[`${of}${which}Seconds`] ?? null;
      return seconds === null ? "–" : lasting(seconds);
    });
    return {
      value: `${most}`,
      name,
      more: `in the last ${words}; half of them: ${half}, the longest: ${longest}`,
    };
  };
  return [
    time("from due to admitted, 95\u00a0%", "wait"),
    time("from admitted to started, 95\u00a0%", "lag"),
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
    {
      title: "For",
      cell: ({ key, where }) =>
        where ? JSON.stringify(where) : key === null ? "every key" : keyInWords(key),
    },
    { title: "Until", cell: ({ until }) => moment(until) },
    { title: "By", cell: ({ by }) => by },
    { title: "Reason", cell: ({ reason }) => reason },
  ],
  "",
)}</section>`;
}

function waitingTable(waiting: readonly Answer[], base: string): Markup {
  return table(
    "Of the partitions with the most or the oldest staged jobs: since when the next job is due, and why it waits",
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
        cell: ({ reason, gate }) => (gate === null ? reasonBadge(reason) : `${reason}, gate ${gate}`),
      },
      { title: "Until", cell: ({ nextAt }) => moment(nextAt) },
    ],
    "No partition waits.",
  );
}

/** Each reason leads to the partitions that have it. */
function reasonsNow(figures: Figures, base: string): Markup {
  const jobs = new Map(figures.by("reason", "staged_jobs"));
  const found = figures.by("reason", "waiting_partitions").filter(([, partitions]) => partitions > 0);
  const most = found[0]?.[1] ?? 0;
  return table(
    "Partitions with staged jobs, by what they wait for",
    found,
    [
      {
        title: "Reason",
        cell: ([reason]) => {
          if (reason === "none") return "none: in line";
          if (reason === "not_due") return reason;
          return html`<a href="${pathTo(base, "/partitions", { reason })}">${reason}</a>`;
        },
      },
      {
        title: "Partitions",
        isNumber: true,
        cell: ([, partitions]) => html`${grouped(partitions)}${compared(partitions, most)}`,
      },
      { title: "Jobs", isNumber: true, cell: ([reason]) => grouped(jobs.get(reason) ?? 0) },
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
  return html`<li class="bad"><span class="mark">warning</span> ${some(jobs, "job")} ${jobs === 1 ? "waits" : "wait"} for <a href="#undeclared">policies that nobody declared</a>.</li>`;
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
  const list = found
    .slice(0, HINTS)
    .map(
      ({ severity, sentence }) =>
        html`<li class="${severity === "info" ? "" : "bad"}"><span class="mark">${severity}</span> ${sentence}</li>`,
    );
  return html`<ul class="hints">${first}${list}</ul>${
    found.length > 0
      ? html`<p><a href="${base}/health">${more > 0 ? `${more} more, and what mends them` : "What mends that"}</a></p>`
      : none
  }`;
}
