import { keyInWords, limitInWords } from "../operate/gate-words.ts";
import { limits, type Override } from "../operate/limits.ts";
import { valuesOf } from "../operate/words.ts";
import { defineCommand } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList } from "./output/say.ts";
import { table } from "./output/table.ts";
import { fromNow } from "./output/words.ts";

/** The limits that operators have set: those in force, and those to come. */
export const command = defineCommand({
  options: { policy: { kind: "text", meaning: "only this policy's", default: "all" }, ...LOOK },
  examples: [["--policy fetch_endpoint", "those of one policy"]],
  about: "The numbers of the declaration: see policies. What each gate has left: see explain.",
  async run(values) {
    const { policy } = values;
    return looks(values, async (context) =>
      answerList(values, await limits(context, { policy }), { table: limitTable, none: "No limit is set." }),
    );
  },
});

function limitTable(rows: readonly Override[]): string {
  return table(
    [
      { title: "POLICY", value: ({ policy }) => policy, least: 8 },
      { title: "GATE", value: ({ gate }) => gate, least: 8 },
      { title: "KEY", value: keyOf }, // whole: a blank at its end matters
      { title: "LIMIT", value: ({ override }) => limitInWords(override) },
      { title: "FROM", value: ({ from }) => (from && from.getTime() > Date.now() ? fromNow(from) : "") },
      { title: "ENDS", value: ({ until }) => (until ? fromNow(until) : "clear-limit") },
      { title: "BY", value: ({ by }) => by ?? "", least: 6 },
      { title: "REASON", value: ({ reason }) => reason ?? "", least: 8 },
    ],
    rows,
  );
}

function keyOf({ key, where, seen }: Override): string {
  if (where !== null) return `(${valuesOf(where)})`;
  return `${key === null ? "(every key)" : keyInWords(key)}${seen ? "" : " (no job yet)"}`;
}
