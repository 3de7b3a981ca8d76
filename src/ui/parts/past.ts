import type { JobHistory } from "../../operate/history.ts";
import { html, type Markup, none } from "./markup.ts";
import { table } from "./table.ts";
import { lasting, moment } from "./words.ts";

/** What is known of a job's past: its moments in order, and what it waited for. Nothing if its policy keeps no history. */
export function past(history: JobHistory | null): Markup {
  if (!history) return none;
  const moments = momentsOf(history);
  const waited = Object.entries(history.waited).toSorted(([, one], [, other]) => other - one);
  return html`<h2>History</h2>
${table(
  "What happened to it",
  moments.map(([what, at], n) => ({ what, at, before: moments[n - 1]?.[1] })),
  [
    { title: "What", cell: ({ what }) => what },
    { title: "At", cell: ({ at }) => moment(at) },
    {
      title: "After",
      isNumber: true,
      cell: ({ at, before }) => (before ? length((at.getTime() - before.getTime()) / 1000) : null),
    },
  ],
  "Nothing is known yet.",
)}
<h2>What it waited for</h2>
${table(
  "How long it waited in staging, by reason",
  waited,
  [
    { title: "Reason", cell: ([reason]) => (reason === "in_line" ? "in_line: others went first" : reason) },
    { title: "For", isNumber: true, cell: ([, seconds]) => length(seconds) },
  ],
  "It waited for nothing in staging.",
)}`;
}

/** Also what is shorter than a second, which most waits are. */
function length(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : lasting(seconds);
}

/** The earliest first, so that no difference is negative. Moments that say nothing new are left out. */
function momentsOf(it: JobHistory): readonly (readonly [string, Date])[] {
  const isFirst = it.lastAdmittedAt?.getTime() === it.admittedAt?.getTime();
  const moments: readonly (readonly [string, Date | null])[] = [
    ["added", it.addedAt],
    ["due", it.dueAt && it.addedAt && it.dueAt <= it.addedAt ? null : it.dueAt],
    [isFirst ? "admitted" : "admitted first", it.admittedAt],
    ["admitted last", isFirst ? null : it.lastAdmittedAt],
    ["last attempt started", it.startedAt],
    [it.outcome ?? "ended", it.endedAt],
  ];
  return moments
    .filter((one): one is readonly [string, Date] => one[1] !== null)
    .toSorted(([, one], [, other]) => one.getTime() - other.getTime());
}
