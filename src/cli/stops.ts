import { keyInWords } from "../operate/gate-words.ts";
import { type StopInForce, stops } from "../operate/stops.ts";
import { defineCommand } from "./command.ts";
import { LOOK, ONLY_POLICY } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList } from "./output/say.ts";
import { table } from "./output/table.ts";
import { fromNow } from "./output/words.ts";

/** What is stopped now: pauses, holds and open breakers. */
export const command = defineCommand({
  options: { ...ONLY_POLICY, ...LOOK },
  examples: [["--policy fetch_endpoint", "what is stopped of one policy"]],
  about:
    "A pause of all policies also stops those that are declared later. A policy that is switched off: see status.",
  async run(values) {
    const { policy } = values;
    return looks(values, async (context) =>
      answerList(values, await stops(context, { policy }), { table: stopTable, none: "Nothing is stopped." }),
    );
  },
});

function stopTable(rows: readonly StopInForce[]): string {
  return table(
    [
      { title: "POLICY", value: ({ policy }) => policy ?? "(all)", least: 8 },
      { title: "PARTITION", value: partitionOf, least: 8 },
      { title: "STOP", value: ({ kind }) => kind },
      { title: "ENDS", value: ({ until }) => (until ? fromNow(until) : "resume") },
      { title: "BY", value: ({ by }) => by ?? "", least: 6 },
      { title: "REASON", value: ({ reason }) => reason ?? "", least: 8 },
    ],
    rows,
  );
}

function partitionOf({ partition, seen }: StopInForce): string {
  if (partition === null) return "(all)";
  return seen ? keyInWords(partition) : `${keyInWords(partition)} (no job yet)`;
}
