import { type Diff, diff, type PartitionDiff, type Replayed, type Span } from "../operate/diff.ts";
import { defineCommand, EXIT, UsageError } from "./command.ts";
import { NUMBERS, numbersOf } from "./input/numbers.ts";
import { JSON_OPTION, LIMIT, limitedBy, whereOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { say, sayJson, saySentence, tell } from "./output/say.ts";
import { table } from "./output/table.ts";
import { atTime, grouped, inWords, some } from "./output/words.ts";

/** Replays the recorded load under another limit. */
export const command = defineCommand({
  options: {
    ...LIMIT,
    ...NUMBERS,
    for: { kind: "duration", meaning: "how much is replayed, up to now", default: "all that is recorded" },
    most: { kind: "number", meaning: "replay at most so many jobs", default: "10000" },
    ...JSON_OPTION,
  },
  examples: [
    ["--policy fetch_endpoint --gate account --key acme --max 80", "what if acme had 80 slots"],
    ['--policy fetch_endpoint --gate throttle --rate 5 --for "20 minutes"', "the last 20 minutes, slower"],
  ],
  about:
    'The policy must record its load: load: { keep: "1 hour" }. It replays in @electric-sql/pglite, which must be installed, and changes nothing.',
  async run(values) {
    const { policy, gate, key, for: forMs, most } = values;
    const where = whereOf(values.where);
    const set = numbersOf(values);
    if (Object.values(set).every((value) => value === undefined))
      throw new UsageError("give at least one number, such as --max or --rate");
    const found = await changing(values, (context) =>
      diff(context, { policy, gate, key, where, set, forMs, most }),
    );
    if (values.json) sayJson(found);
    else sayWith(found, `gate ${gate} for ${limitedBy({ key, where })}`);
    return EXIT.done;
  },
});

interface Row {
  readonly partition: string;
  readonly limits: string;
  readonly figures: Replayed;
}

function sayWith(found: Diff, what: string): void {
  const differing = found.partitions.filter(differs);
  const same = found.partitions.length - differing.length;
  if (differing.length > 0) say(table(COLUMNS, differing.flatMap(rowsOf)));
  else saySentence(`Nothing would have been different with the other limit of ${what}.`);
  if (differing.length > 0 && same > 0) tell(`${some(same, "other partition")} would have been the same.`);
  tell(
    `Replayed ${some(found.jobs, "job")} from ${atTime(found.from)} to ${atTime(found.until)}. ${trustOf(found)}`,
  );
  for (const note of notesOf(found)) tell(note);
}

/** How near the replay of the unchanged limits is to what happened. */
function trustOf({ partitions }: Diff): string {
  const admitted = partitions.reduce((sum, one) => sum + one.admitted, 0);
  const started = spanOf(partitions.map(({ before }) => before.started));
  return `As it was, ${inFigures(started)} start in the replay, and ${grouped(admitted)} did in fact.`;
}

function spanOf(spans: readonly Span[]): Span {
  const total = (end: keyof Span) => spans.reduce((sum, span) => sum + span[end], 0);
  return { from: total("from"), to: total("to") };
}

function notesOf({ jobs, recordedJobs, waited, waitedReplayed, isInterval, partitions }: Diff): string[] {
  const notes = [];
  if (recordedJobs > jobs)
    notes.push(`${some(recordedJobs, "job")} came in all: with a higher --most a longer time is replayed.`);
  if (waited > 0)
    notes.push(
      `${some(waited, "job")} waited at the beginning, and count as waiting from then` +
        `${waitedReplayed < waited ? `; ${grouped(waitedReplayed)} of them were replayed` : ""}.`,
    );
  if (isInterval) notes.push("Figures from one value to another depend on how long jobs run.");
  if (partitions.some(({ partition }) => partition === null))
    notes.push("Smaller partitions replay as one, and only past gates over the whole policy: (others).");
  return notes;
}

function differs({ before, after }: PartitionDiff): boolean {
  return JSON.stringify(before) !== JSON.stringify(after);
}

function rowsOf({ partition, before, after }: PartitionDiff): Row[] {
  return [
    { partition: partition ?? "(others)", limits: "as it was", figures: before },
    { partition: "", limits: "changed", figures: after },
  ];
}

const COLUMNS = [
  { title: "PARTITION", value: ({ partition }: Row) => partition, least: 10 },
  { title: "LIMITS", value: ({ limits }: Row) => limits },
  { title: "STARTED", value: ({ figures }: Row) => inFigures(figures.started), isNumber: true as const },
  { title: "WAITING", value: ({ figures }: Row) => inFigures(figures.waiting), isNumber: true as const },
  {
    title: "MEDIAN WAIT",
    value: ({ figures }: Row) => asTime(figures.medianWaitSeconds),
    isNumber: true as const,
  },
  {
    title: "95 % WAIT",
    value: ({ figures }: Row) => asTime(figures.p95WaitSeconds),
    isNumber: true as const,
  },
  {
    title: "LONGEST",
    value: ({ figures }: Row) => asTime(figures.longestWaitSeconds),
    isNumber: true as const,
  },
];

function inFigures({ from, to }: Span): string {
  return from === to ? grouped(from) : `${grouped(from)} to ${grouped(to)}`;
}

function asTime({ from, to }: Span): string {
  const ends = [from, to].map((seconds) => (seconds === 0 ? "0 s" : inWords(seconds * 1000)));
  return [...new Set(ends)].join(" to ");
}
