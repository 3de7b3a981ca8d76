import { doctor } from "../../operate/doctor.ts";
import type { Answer } from "../../operate/explain.ts";
import { longestWaiting } from "../../operate/longest-waiting.ts";
import { status } from "../../operate/status.ts";
import { stops } from "../../operate/stops.ts";
import { partitionLink, policyLink } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { stopTable } from "../parts/stop-table.ts";
import { table } from "../parts/table.ts";
import { grouped, lasting, moment } from "../parts/words.ts";
import { bars, eachMinute, lastHour, reasonTable } from "./minutes.ts";
import { stateOf } from "./policies.ts";
import type { Page } from "./visit.ts";

const HINTS = 5;
const WAITING = 5;

/** How everything is. */
export const overview: Page = async ({ looking, acting, base }) => {
  const { policies, workers } = await status(looking);
  const minutes = await lastHour(looking);
  const inForce = await stops(looking);
  const waiting = await longestWaiting(looking, WAITING);
  const findings = await doctor(acting);
  const sum = (of: "staged" | "inFlight") => policies.reduce((total, one) => total + one[of], 0);
  const last = minutes.findLast(({ waitP50Seconds }) => waitP50Seconds !== null);
  const cards: readonly (readonly [string, string])[] = [
    ["wait in staging", grouped(sum("staged"))],
    ["in flight", grouped(sum("inFlight"))],
    ["admitted a minute, of the last 1, 5, 15", paces(minutes)],
    ["from due to admitted, half and 95 %", last ? waits(last.waitP50Seconds, last.waitP95Seconds) : "–"],
    ["worker pools alive", grouped(workers.filter(({ alive }) => alive).length)],
  ];
  return {
    title: "Overview",
    body: html`${hints(findings, base)}
<ul class="cards">${cards.map(([name, value]) => html`<li><strong>${value}</strong><span>${name}</span></li>`)}</ul>
${bars(minutes, "admitted", "Admitted jobs")}
<h2>Policies</h2>
${table(
  "What waits, and what runs",
  policies,
  [
    { title: "Policy", cell: (one) => policyLink(base, one.policy) },
    { title: "State", cell: stateOf },
    { title: "Staged", isNumber: true, cell: (one) => grouped(one.staged) },
    { title: "In flight", isNumber: true, cell: (one) => grouped(one.inFlight) },
    { title: "Partitions", isNumber: true, cell: (one) => grouped(one.partitions) },
  ],
  html`No policy is declared. Start a worker with <code>dispatchPolicyPreset</code>.`,
)}
<h2>Waiting for longest</h2>
${waitingTable(waiting, base)}
<h2>Why partitions kept due jobs</h2>
${reasonTable(minutes)}
<h2>Stopped by name</h2>
${stopTable(inForce, base)}`,
  };
};

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
        cell: ({ reason, gate }) => (gate === null ? reason : `${reason}, gate ${gate}`),
      },
      { title: "Until", cell: ({ nextAt }) => moment(nextAt) },
    ],
    "No partition waits.",
  );
}

function paces(minutes: Parameters<typeof eachMinute>[0]): string {
  return [1, 5, 15].map((back) => grouped(Math.round(eachMinute(minutes, "admitted", back)))).join(" / ");
}

function waits(half: number | null, most: number | null): string {
  return [half, most].map((seconds) => (seconds === null ? "–" : lasting(seconds))).join(" / ");
}

function hints(findings: Awaited<ReturnType<typeof doctor>>, base: string): Markup {
  if (findings.length === 0) return html`<p class="good"><span class="mark">✓</span> Nothing is wrong.</p>`;
  const more = findings.length - HINTS;
  return html`<ul>${findings
    .slice(0, HINTS)
    .map(
      ({ severity, sentence }) =>
        html`<li class="${severity === "info" ? "" : "bad"}"><span class="mark">${severity}</span> ${sentence}</li>`,
    )}</ul><p><a href="${base}/health">${more > 0 ? `${more} more, and what mends them` : "What mends them"}</a></p>`;
}
