import { some } from "../../counted.ts";
import type { Diff, Span } from "../../operate/diff.ts";
import { type DiffLine, differs, inFigures, linesOf, meaningOf, trustIn } from "../../operate/diff-words.ts";
import { html, type Markup } from "./markup.ts";
import { type Column, table } from "./table.ts";
import { lasting, moment } from "./words.ts";

/** How many partitions it shows. */
const MOST = 10;

/** What would have been different under another limit, and how far to trust that. */
export function whatIf(found: Diff): Markup {
  const differing = found.partitions.filter(differs);
  const more = differing.length - MOST;
  return html`<h2>What would have happened</h2>
${table(
  "The recorded load under both limits: two lines for each partition that would differ",
  differing.slice(0, MOST).flatMap(linesOf),
  COLUMNS,
  "Nothing would have been different.",
)}
${more > 0 ? html`<p>${some(more, "more partition")} would differ.</p>` : ""}
<p>Replayed ${some(found.jobs, "job")} from ${moment(found.from)} to ${moment(found.until)}. ${trustIn(found)}</p>
${notesOn(found).map((note) => html`<p>${note}</p>`)}`;
}

function notesOn(found: Diff): readonly string[] {
  const { jobs, recordedJobs, waited } = found;
  return [
    ...(recordedJobs > jobs
      ? [`${some(recordedJobs, "job")} came in all. The command diff replays more of them.`]
      : []),
    ...(waited > 0
      ? [`${some(waited, "job")} waited at the beginning, and count as waiting from then.`]
      : []),
    ...meaningOf(found),
  ];
}

const COLUMNS: readonly Column<DiffLine>[] = [
  { title: "Partition", cell: ({ partition }) => partition },
  { title: "Limits", cell: ({ limits }) => limits },
  { title: "Started", isNumber: true, cell: ({ figures }) => inFigures(figures.started) },
  { title: "Waiting at the end", isNumber: true, cell: ({ figures }) => inFigures(figures.waiting) },
  { title: "Median wait", isNumber: true, cell: ({ figures }) => asTime(figures.medianWaitSeconds) },
  { title: "95 % wait", isNumber: true, cell: ({ figures }) => asTime(figures.p95WaitSeconds) },
  { title: "Longest", isNumber: true, cell: ({ figures }) => asTime(figures.longestWaitSeconds) },
];

function asTime({ from, to }: Span): string {
  return [...new Set([from, to].map(lasting))].join(" to ");
}
