import { some } from "../../counted.ts";
import type { Diff, PartitionDiff, Replayed, Span } from "../../operate/diff.ts";
import { html, type Markup } from "./markup.ts";
import { type Column, table } from "./table.ts";
import { grouped, lasting, moment } from "./words.ts";

/** How many partitions it shows. */
const MOST = 10;

interface Row {
  readonly partition: string;
  readonly limits: string;
  readonly figures: Replayed;
}

/** What would have been different under another limit, and how far to trust that. */
export function whatIf(found: Diff): Markup {
  const differing = found.partitions.filter(differs);
  const more = differing.length - MOST;
  return html`<h2>What would have happened</h2>
${table(
  "The recorded load under both limits: two lines for each partition that would differ",
  differing.slice(0, MOST).flatMap(rowsOf),
  COLUMNS,
  "Nothing would have been different.",
)}
${more > 0 ? html`<p>${some(more, "more partition")} would differ.</p>` : ""}
<p>Replayed ${some(found.jobs, "job")} from ${moment(found.from)} to ${moment(found.until)}. ${trustIn(found)}</p>
${notesOn(found).map((note) => html`<p>${note}</p>`)}`;
}

/** How near the replay of the unchanged limits is to what happened. */
function trustIn({ partitions }: Diff): string {
  const sum = (each: (one: PartitionDiff) => number) => partitions.reduce((all, one) => all + each(one), 0);
  const started = {
    from: sum(({ before }) => before.started.from),
    to: sum(({ before }) => before.started.to),
  };
  return `As it was, ${inFigures(started)} start in the replay, and ${grouped(sum(({ admitted }) => admitted))} did in fact.`;
}

function notesOn({ jobs, recordedJobs, waited, isInterval, partitions }: Diff): readonly string[] {
  const hasOthers = partitions.some(({ partition }) => partition === null);
  return [
    ...(recordedJobs > jobs
      ? [`${some(recordedJobs, "job")} came in all. The command diff replays more of them.`]
      : []),
    ...(waited > 0
      ? [`${some(waited, "job")} waited at the beginning, and count as waiting from then.`]
      : []),
    ...(isInterval ? ["Figures from one value to another depend on how long jobs run."] : []),
    ...(hasOthers
      ? ["Smaller partitions replay as one, and only past gates over the whole policy: (others)."]
      : []),
  ];
}

function differs({ before, after }: PartitionDiff): boolean {
  return JSON.stringify(before) !== JSON.stringify(after);
}

function rowsOf({ partition, before, after }: PartitionDiff): readonly Row[] {
  const name = partition ?? "(others)";
  return [
    { partition: name, limits: "as it was", figures: before },
    { partition: name, limits: "changed", figures: after },
  ];
}

const COLUMNS: readonly Column<Row>[] = [
  { title: "Partition", cell: ({ partition }) => partition },
  { title: "Limits", cell: ({ limits }) => limits },
  { title: "Started", isNumber: true, cell: ({ figures }) => inFigures(figures.started) },
  { title: "Waiting at the end", isNumber: true, cell: ({ figures }) => inFigures(figures.waiting) },
  { title: "Median wait", isNumber: true, cell: ({ figures }) => asTime(figures.medianWaitSeconds) },
  { title: "95 % wait", isNumber: true, cell: ({ figures }) => asTime(figures.p95WaitSeconds) },
  { title: "Longest", isNumber: true, cell: ({ figures }) => asTime(figures.longestWaitSeconds) },
];

function inFigures({ from, to }: Span): string {
  return from === to ? grouped(from) : `${grouped(from)} to ${grouped(to)}`;
}

function asTime({ from, to }: Span): string {
  return [...new Set([from, to].map(lasting))].join(" to ");
}
