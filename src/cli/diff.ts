import { suggestion } from "../closest.ts";
import { connected } from "../db/looking.ts";
import type { AnyPolicy } from "../index.ts";
import { type Diff, diff, type PartitionDiff, type Span } from "../operate/diff.ts";
import { type DiffLine, differs, inFigures, linesOf, meaningOf, trustIn } from "../operate/diff-words.ts";
import { limitedBy } from "../operate/words.ts";
import { defineCommand, EXIT, type Options, type PlaceValues, UsageError, type Values } from "./command.ts";
import { NUMBERS, numbersOf } from "./input/numbers.ts";
import { JSON_OPTION, LIMIT, whereOf } from "./input/options.ts";
import { changing, inPlace, placeOf } from "./input/place.ts";
import { say, sayJson, saySentence, tell } from "./output/say.ts";
import { table } from "./output/table.ts";
import { atTime, grouped, inWords, some } from "./output/words.ts";

const OPTIONS = {
  ...LIMIT,
  gate: { kind: "text", meaning: "the gate, by name; or instead of it --definition", default: "none" },
  definition: {
    kind: "flag",
    meaning: "the policy as the configuration has it now, instead of other numbers",
    default: "off",
  },
  ...NUMBERS,
  for: { kind: "duration", meaning: "how much is replayed, up to now", default: "all that is recorded" },
  most: { kind: "number", meaning: "replay at most so many jobs", default: "10000" },
  ...JSON_OPTION,
} as const satisfies Options;

/** Replays the recorded load under another limit, or under another definition of the policy. */
export const command = defineCommand({
  options: OPTIONS,
  examples: [
    ["--policy fetch_endpoint --gate account --key acme --max 80", "what if acme had 80 slots"],
    ['--policy fetch_endpoint --gate throttle --rate 5 --for "20 minutes"', "the last 20 minutes, slower"],
    ["--policy fetch_endpoint --definition --config graphile.config.ts", "the policy as you have changed it"],
  ],
  about:
    'The policy must record its load: load: { keep: "1 hour" }. It replays in @electric-sql/pglite, which must be installed, and changes nothing.',
  async run(values) {
    const { found, other } = await (values.definition ? ofDefinition(values) : ofLimit(values));
    if (values.json) sayJson(found);
    else sayWith(found, other);
    return EXIT.done;
  },
});

type Given = Values<typeof OPTIONS>;
/** `other`: what differs, in words. */
type Found = Promise<{ found: Diff; other: string }>;

async function ofLimit(values: Given): Found {
  const { policy, gate, key, for: forMs, most } = values;
  if (gate === undefined) throw new UsageError("give --gate NAME with a number, or --definition");
  const where = whereOf(values.where);
  const set = numbersOf(values);
  if (isEmpty(set)) throw new UsageError("give at least one number, such as --max or --rate");
  const found = await changing(values, (context) =>
    diff(context, { policy, gate, key, where, set, forMs, most }),
  );
  return { found, other: `the other limit of gate ${gate} for ${limitedBy({ key, where })}` };
}

async function ofDefinition(values: Given): Found {
  const { policy, gate, key, where, for: forMs, most } = values;
  if (!isEmpty({ gate, key, where, ...numbersOf(values) }))
    throw new UsageError("--definition goes without --gate, --key, --where and numbers");
  const { place, definition } = await configured(values, policy);
  const found = await inPlace(place, connected, (context) =>
    diff(context, { policy, definition, forMs, most }),
  );
  return { found, other: "the definition in the configuration" };
}

/** @throws {UsageError} if there is no configuration, or if it does not have the policy */
async function configured(values: PlaceValues, policy: string) {
  const place = await placeOf(values, true);
  const policies: readonly AnyPolicy[] | undefined = place.options?.policies;
  if (policies === undefined)
    throw new UsageError("no configuration with policies in this folder: name it with --config FILE");
  const definition = policies.find(({ identifier }) => identifier === policy);
  if (definition) return { place, definition };
  const names = policies.map(({ identifier }) => identifier);
  throw new UsageError(`the configuration has no policy "${policy}"${suggestion(policy, names, "policies")}`);
}

function isEmpty(given: object): boolean {
  return Object.values(given).every((value) => value === undefined);
}

function sayWith(found: Diff, other: string): void {
  const differing = found.partitions.filter(differs);
  const same = found.partitions.length - differing.length;
  if (differing.length > 0) say(table(COLUMNS, differing.flatMap(rowsOf)));
  else saySentence(`Nothing would have been different with ${other}.`);
  if (differing.length > 0 && same > 0) tell(`${some(same, "other partition")} would have been the same.`);
  tell(
    `Replayed ${some(found.jobs, "job")} from ${atTime(found.from)} to ${atTime(found.until)}. ${trustIn(found)}`,
  );
  for (const note of notesOf(found)) tell(note);
}

function notesOf(found: Diff): string[] {
  const { jobs, recordedJobs, waited, waitedReplayed, notReplayed } = found;
  const notes = notReplayed.map((option) => `Not replayed: the other ${option}. ${KEPT[option]}`);
  if (recordedJobs > jobs)
    notes.push(`${some(recordedJobs, "job")} came in all: with a higher --most a longer time is replayed.`);
  if (waited > 0)
    notes.push(
      `${some(waited, "job")} waited at the beginning, and count as waiting from then` +
        `${waitedReplayed < waited ? `; ${grouped(waitedReplayed)} of them were replayed` : ""}.`,
    );
  return [...notes, ...meaningOf(found)];
}

const KEPT: Readonly<Record<Diff["notReplayed"][number], string>> = {
  context: "Limits are worked out from the contexts that were stored.",
  partitionBy: "Jobs keep the partitions that they had.",
  cost: "Jobs cost what they did.",
};

/** The second line of a partition does not say its name again. */
function rowsOf(one: PartitionDiff): DiffLine[] {
  return linesOf(one).map((line, nth) => (nth === 0 ? line : { ...line, partition: "" }));
}

const COLUMNS = [
  { title: "PARTITION", value: ({ partition }: DiffLine) => partition, least: 10 },
  { title: "LIMITS", value: ({ limits }: DiffLine) => limits },
  { title: "STARTED", value: ({ figures }: DiffLine) => inFigures(figures.started), isNumber: true as const },
  { title: "WAITING", value: ({ figures }: DiffLine) => inFigures(figures.waiting), isNumber: true as const },
  {
    title: "MEDIAN WAIT",
    value: ({ figures }: DiffLine) => asTime(figures.medianWaitSeconds),
    isNumber: true as const,
  },
  {
    title: "95 % WAIT",
    value: ({ figures }: DiffLine) => asTime(figures.p95WaitSeconds),
    isNumber: true as const,
  },
  {
    title: "LONGEST",
    value: ({ figures }: DiffLine) => asTime(figures.longestWaitSeconds),
    isNumber: true as const,
  },
];

function asTime({ from, to }: Span): string {
  const ends = [from, to].map((seconds) => (seconds === 0 ? "0 s" : inWords(seconds * 1000)));
  return [...new Set(ends)].join(" to ");
}
