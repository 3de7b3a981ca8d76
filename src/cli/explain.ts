import type { OperateContext } from "../operate/call.ts";
import { type Answer, ask, type ExplainedGate, type SetBy } from "../operate/explain.ts";
import { keyInWords, sharesInWords } from "../operate/gate-words.ts";
import { commandOfMend } from "../operate/mend.ts";
import type { PartitionTarget } from "../operate/targets.ts";
import { parameter, rowsOf } from "../operate/view-rows.ts";
import { defineCommand, EXIT, type Exit, UsageError } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { say, sayJson, saySentence, tell } from "./output/say.ts";
import { visible, wrapped } from "./output/table.ts";
import { atTime, calendarInWords, grouped, inWords, waitsInWords } from "./output/words.ts";

/** Says why a job, or a partition's next job, waits. */
export const command = defineCommand({
  argument: {
    name: "id",
    kind: "text",
    meaning: "the job's id, staged or Graphile Worker's; or instead of it:",
  },
  options: {
    policy: { kind: "text", meaning: "the partition's policy", default: "none" },
    partition: { kind: "text", meaning: "the partition's key; or instead of both:", default: "none" },
    key: { kind: "text", meaning: "a partition's key, of whatever policy", default: "none" },
    ...LOOK,
  },
  examples: [
    ["1000000000000042", "a job"],
    ["--policy fetch_endpoint --partition ep1", "a partition's next job"],
    ["--key ep1", "the same, or a sentence for each policy that has the key"],
  ],
  about:
    "x marks a gate without room. Below it stand the jobs that have occupied its slots for longest. ~ marks a shadow gate that would have none.",
  async run(values) {
    const { key, json } = values;
    const target = targetOf(values.rest, values);
    return looks(values, async (context) => {
      const found = target ? [await ask(context, target)] : await askEach(context, key as string);
      const [first] = found;
      if (!first) return tellNear(context, key as string);
      if (json) found.forEach(sayJson);
      else if (found.length > 1) sayEach(found);
      else sayWith(first, context.engine.schemaName);
      return first.state === "unknown" ? EXIT.nothing : EXIT.done;
    });
  },
});

/** Null: a key of whatever policy is asked for. */
function targetOf(
  [id]: readonly string[],
  { policy, partition, key }: Record<"policy" | "partition" | "key", string | undefined>,
): { id: string } | PartitionTarget | null {
  const given = [id, policy, partition, key].filter((one) => one !== undefined).length;
  if (id !== undefined && given === 1) return { id };
  if (policy !== undefined && partition !== undefined && given === 2) return { policy, partition };
  if (key !== undefined && given === 1) return null;
  throw new UsageError("give a job's id, --policy NAME and --partition KEY, or --key KEY");
}

/** The partitions of this key, of all policies. A policy is asked by its name: by the key alone all partitions would be read. */
async function askEach(context: OperateContext, key: string): Promise<readonly Answer[]> {
  const found: Answer[] = [];
  for (const { policy } of await rowsOf<{ policy: string }>(context, "policies", "order by policy")) {
    const it = await ask(context, { policy, partition: key });
    if (it.state !== "unknown") found.push(it);
  }
  return found;
}

const KEY = parameter(1, "text");
const NEAR = `where strpos(lower(partition), lower(${KEY})) > 0 or strpos(lower(${KEY}), lower(partition)) > 0 and partition <> ''
  order by length(partition), policy, partition limit 5`;

async function tellNear(context: OperateContext, key: string): Promise<Exit> {
  const near = await rowsOf<{ policy: string; partition: string }>(context, "partitions", NEAR, [key]);
  tell(`No partition has the key ${JSON.stringify(key)}.`);
  if (near.length > 0)
    tell(`Near it: ${near.map(({ policy, partition }) => `${policy}/${partition}`).join(", ")}`);
  return EXIT.nothing;
}

function sayEach(found: readonly Answer[]): void {
  for (const it of found) say(`${headOf(it)}\n${wrapped(visible(`  ${it.sentence}`), "  ")}`);
  tell("For more of one: explain --policy NAME --partition KEY");
}

/** The answer, where more is written about it, and what to do. */
function sayWith(it: Answer, schema: string): void {
  say(inLines(it).join("\n"));
  if (it.page) say(`More: ${it.page}`);
  else if (it.tickedBy === null) say("More: docs/operating.md#nobody-ticks");
  if (it.mend === null) return;
  const line = commandOfMend(it.mend, it.asOf, schema);
  saySentence(`${it.mend.words}${line === null ? "." : ":"}`);
  if (line !== null) say(`    ${visible(line)}`); // in one piece, to copy
}

function headOf(it: Answer): string {
  const what = it.state === "waiting" || it.id === undefined ? "" : ` ${it.id}`;
  const head = [
    `${typeof it.partition === "string" ? `${it.policy}/${keyInWords(it.partition)}` : (it.policy ?? "")}${what}`.trim(),
    it.state,
  ];
  if (it.reason) head.push(it.reason);
  return visible(head.join("  "));
}

function inLines(it: Answer): string[] {
  const gates = it.gates
    .flatMap((gate) => linesOf(gate, it.asOf))
    .map((line) => wrapped(visible(line), " ".repeat(8)));
  const expected = expectedOf(it);
  const past = pastOf(it).map((line) => wrapped(visible(line), " ".repeat(4)));
  return [headOf(it), wrapped(visible(it.sentence)), ...expected, ...gates, ...past];
}

/** When it is expected to start, or why nobody can tell; no line if it does not wait. Counted by the database's clock. */
function expectedOf({ asOf, estimate, noEstimate }: Answer): string[] {
  const say = (line: string) => [wrapped(visible(line), " ".repeat(4))];
  if (noEstimate) return say(`  start unknown: ${noEstimate}`);
  if (!estimate) return [];
  const ends = [estimate.from, estimate.until].map((at) => inWords(at.getTime() - asOf.getTime()));
  return say(`  start in ${[...new Set(ends)].join(" to ")}, by ${estimate.basis}`);
}

/** The times and waits of a job whose policy has a history. */
function pastOf({ state, history }: Answer): string[] {
  if (history === null) return [];
  const { addedAt, dueAt, admittedAt, lastAdmittedAt, startedAt, endedAt, waited } = history;
  const isAgain = lastAdmittedAt?.getTime() !== admittedAt?.getTime();
  const times: readonly (readonly [string, Date | null])[] = [
    ["added", addedAt],
    ["due", dueAt],
    ["admitted", admittedAt],
    ["last admitted", isAgain ? lastAdmittedAt : null],
    ["started", startedAt],
    ["ended", endedAt],
  ];
  const line = `  ${times.flatMap(([what, at]) => (at ? `${what} ${atTime(at)}` : [])).join(", ")}`;
  const waits = waitsInWords(waited);
  // the sentence of one that has ended says it
  return state === "ended" || waits === "" ? [line] : [line, `  waited ${waits}`];
}

function reachOf({ key, where }: SetBy): string {
  if (where !== null) return `for ${JSON.stringify(where)} `;
  return key === null ? "for every key " : "";
}

function perOf({ per, calendar }: { per: number; calendar: string | null }): string {
  return calendar === null ? `${grouped(per)} s` : calendarInWords(calendar);
}

/** One gate on a line, and a line for each job that occupies a slot of one without room. */
function linesOf(it: ExplainedGate, asOf: Date): string[] {
  const { gate, key, limit, free, lacks, reason, nextAt, setBy, holders, shadow, wouldLack, sharedBy } = it;
  const shares = "max" in limit ? sharesInWords(limit) : undefined;
  const of = shares === undefined ? "" : ` (${shares})`;
  const left =
    "max" in limit
      ? `${limit.max === null ? "no bound" : `${free} of ${limit.max} slots free${of}`}`
      : `${grouped(free ?? 0)} of ${grouped(limit.capacity)} tokens, ${grouped(limit.rate)} per ${perOf(limit)}`;
  const set = setBy
    ? `; ${setBy.hold ? "held " : `set ${reachOf(setBy)}`}by ${setBy.by}${setBy.until ? ` until ${atTime(setBy.until)}` : ""}`
    : "";
  const next =
    nextAt && reason === "throttle_empty" ? `; enough in ${inWords(nextAt.getTime() - asOf.getTime())}` : "";
  const users = sharedBy ? `; shared by ${sharedBy.join(", ")}` : "";
  const real = shadow ? `; shadow: ${wouldLack ? "would hold it back" : "would let it go"}` : "";
  return [
    `  ${lacks ? "x" : wouldLack ? "~" : "-"} ${gate}${key === null ? "" : ` of ${keyInWords(key)}`}: ${left}${next}${real}${set}${users}`,
    ...holders.map(
      ({ jobId, policy, partition, admittedAt, workerId }) =>
        `      job ${jobId} of ${sharedBy ? `${policy}, ` : ""}${keyInWords(partition)} since ${atTime(admittedAt)}${workerId ? `, ${workerId}` : ""}`,
    ),
  ];
}
