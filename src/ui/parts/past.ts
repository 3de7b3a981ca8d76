import type { JobHistory } from "../../operate/history.ts";
import { reasonBadge } from "./badge.ts";
import { compared } from "./gauge.ts";
import { html, type Markup, none } from "./markup.ts";
import { table } from "./table.ts";
import { timeLine } from "./time-line.ts";
import { lasting, moment } from "./words.ts";

/** A moment of a job's past. */
interface Moment {
  readonly what: string;
  readonly at: Date;
  readonly error?: string | null;
}

/** What is known of a job's past: its moments in order, and what it waited for. Nothing if its policy keeps no history. */
export function past(history: JobHistory | null): Markup {
  if (!history) return none;
  const moments = momentsOf(history);
  const waited = Object.entries(history.waited).toSorted(([, one], [, other]) => other - one);
  return html`<h2>History</h2>
${timeLine(history)}
${table(
  "What happened to it",
  moments.map((one, n) => ({ ...one, before: moments[n - 1]?.at })),
  [
    { title: "What", cell: ({ what }) => what },
    { title: "At", cell: ({ at }) => moment(at, true) },
    {
      title: "After",
      isNumber: true,
      cell: ({ at, before }) => (before ? length((at.getTime() - before.getTime()) / 1000) : null),
    },
    ...(moments.some(({ error }) => error)
      ? [{ title: "Error", cell: ({ error }: Moment) => error ?? "" }]
      : []),
  ],
  "Nothing is known yet.",
)}
<h2>What it waited for</h2>
${table(
  "How long it waited in staging, by reason",
  waited,
  [
    {
      title: "Reason",
      cell: ([reason]) => (reason === "in_line" ? "In line: others went first" : reasonBadge(reason)),
    },
    {
      title: "For",
      isNumber: true,
      cell: ([, seconds]) => html`${length(seconds)}${compared(seconds, waited[0]?.[1] ?? 0)}`,
    },
  ],
  "It waited for nothing in staging.",
)}`;
}

/** Also what is shorter than a second, which most waits are. */
function length(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : lasting(seconds);
}

/** The earliest first, so that no difference is negative. Moments that say nothing new are left out. */
function momentsOf(it: JobHistory): readonly Moment[] {
  const isFirst = it.lastAdmittedAt?.getTime() === it.admittedAt?.getTime();
  const hasFailedAtLast = it.failedAttempts.some(
    ({ endedAt }) => endedAt?.getTime() === it.endedAt?.getTime(),
  );
  const moments: readonly { what: string; at: Date | null; error?: string | null }[] = [
    { what: "added", at: it.addedAt },
    { what: "due", at: it.dueAt && it.addedAt && it.dueAt <= it.addedAt ? null : it.dueAt },
    { what: isFirst ? "admitted" : "admitted first", at: it.admittedAt },
    { what: "admitted last", at: isFirst ? null : it.lastAdmittedAt },
    ...it.failedAttempts.flatMap(({ attempt, startedAt, endedAt, error }) => {
      const isLast = startedAt?.getTime() === it.startedAt?.getTime();
      const name = `attempt ${attempt ?? "of unknown number"}`;
      return [
        { what: `${name} started`, at: isLast ? null : startedAt },
        { what: `${name} failed`, at: hasFailedAtLast && isLast ? null : endedAt, error },
      ];
    }),
    { what: "last attempt started", at: it.startedAt },
    { what: it.outcome ?? "ended", at: it.endedAt, error: it.error },
  ];
  return moments
    .filter((one): one is Moment => one.at !== null)
    .toSorted((one, other) => one.at.getTime() - other.at.getTime());
}
