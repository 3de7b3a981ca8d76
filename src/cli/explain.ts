import { type Answer, ask, type ExplainedGate, type SetBy } from "../operate/explain.ts";
import { keyInWords, sharesInWords } from "../operate/gate-words.ts";
import type { PartitionTarget } from "../operate/targets.ts";
import { defineCommand, EXIT, UsageError } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { say, sayJson, tell } from "./output/say.ts";
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
    partition: { kind: "text", meaning: "the partition's key", default: "none" },
    ...LOOK,
  },
  examples: [
    ["1000000000000042", "a job"],
    ["--policy fetch_endpoint --partition ep1", "a partition's next job"],
  ],
  about:
    "x marks a gate without room. Below it stand the jobs that have occupied its slots for longest. ~ marks a shadow gate that would have none.",
  async run(values) {
    const target = targetOf(values.rest, values);
    return looks(values, async (context) => {
      const it = await ask(context, target);
      if (values.json) sayJson(it);
      else sayWith(it);
      return it.state === "unknown" ? EXIT.nothing : EXIT.done;
    });
  },
});

function targetOf(
  [id]: readonly string[],
  { policy, partition }: { policy: string | undefined; partition: string | undefined },
): { id: string } | PartitionTarget {
  if (id !== undefined && policy === undefined && partition === undefined) return { id };
  if (id === undefined && policy !== undefined && partition !== undefined) return { policy, partition };
  throw new UsageError("give one job's id, or --policy NAME and --partition KEY");
}

/** The answer, and where more is written about it. Both files are in the package. */
function sayWith(it: Answer): void {
  say(inLines(it).join("\n"));
  if (it.page) tell(`More: ${it.page}`);
  else if (it.tickedBy === null) tell("More: docs/operating.md#nobody-ticks");
  if (it.state === "failed") tell(`To bring it back: retry ${it.jobId}`);
}

function inLines(it: Answer): string[] {
  const what = it.state === "waiting" || it.id === undefined ? "" : ` ${it.id}`;
  const head = [
    `${typeof it.partition === "string" ? `${it.policy}/${keyInWords(it.partition)}` : (it.policy ?? "")}${what}`.trim(),
    it.state,
  ];
  if (it.reason) head.push(it.reason);
  const gates = it.gates
    .flatMap((gate) => linesOf(gate, it.asOf))
    .map((line) => wrapped(visible(line), " ".repeat(8)));
  const expected = expectedOf(it);
  const past = pastOf(it).map((line) => wrapped(visible(line), " ".repeat(4)));
  return [visible(head.join("  ")), wrapped(visible(it.sentence)), ...expected, ...gates, ...past];
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
  const { gate, key, limit, free, lacks, reason, nextAt, setBy, holders, shadow, wouldLack } = it;
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
  const real = shadow ? `; shadow: ${wouldLack ? "would hold it back" : "would let it go"}` : "";
  return [
    `  ${lacks ? "x" : wouldLack ? "~" : "-"} ${gate}${key === null ? "" : ` of ${keyInWords(key)}`}: ${left}${next}${real}${set}`,
    ...holders.map(
      ({ jobId, partition, admittedAt, workerId }) =>
        `      job ${jobId} of ${keyInWords(partition)} since ${atTime(admittedAt)}${workerId ? `, ${workerId}` : ""}`,
    ),
  ];
}
