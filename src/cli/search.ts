import { keyInWords } from "../operate/gate-words.ts";
import { argument as quoted } from "../operate/quoted.ts";
import { type SearchHit, search } from "../operate/search.ts";
import { defineCommand } from "./command.ts";
import { LOOK } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList, tell } from "./output/say.ts";
import { table } from "./output/table.ts";

/** What a word leads to: policies, partitions, jobs and errors. */
export const command = defineCommand({
  argument: {
    name: "query",
    kind: "text",
    required: true,
    meaning:
      "a job's id or key, a partition's key or a value of its context, a policy, or a part of an error",
  },
  options: {
    max: { kind: "number", meaning: "how many of each kind at most, 1 to 100", default: "20" },
    ...LOOK,
  },
  examples: [
    ["cust-06", "what there is of a customer"],
    ['"connect ECONNREFUSED"', "which jobs failed by that"],
  ],
  about:
    "The best comes first. It also finds what differs by a blank, capitals or one character, and says so.",
  async run(values) {
    const { rest, max } = values;
    const [query = ""] = rest;
    return looks(values, async (context) => {
      const { hits, more } = await search(context, { query, max });
      const exit = answerList(values, hits, {
        table: hitTable,
        none: `Nothing matches ${keyInWords(query)}.`,
      });
      if (more !== null) tell(`More may match: ${more}.`);
      const why = hits.map(explained).find((line) => line !== undefined);
      if (why !== undefined && !values.json) tell(`Where it stands: explain ${why}`);
      return exit;
    });
  },
});

function hitTable(hits: readonly SearchHit[]): string {
  return table(
    [
      { title: "WHAT", value: ({ kind }) => kind },
      { title: "JOB", isNumber: true, value: ({ jobId }) => jobId ?? "" },
      { title: "POLICY", value: ({ policy }) => policy ?? "", least: 8 },
      { title: "PARTITION", value: ({ partition }) => keyInWords(partition), least: 10 },
      { title: "STATE", value: ({ state }) => state },
      { title: "FOUND BY", value: foundBy, least: 10 },
      { title: "NOTE", value: ({ note }) => note ?? "", least: 12 },
    ],
    hits,
  );
}

/** What no other column says. */
function foundBy({ matched, policy, partition, jobId, kind }: SearchHit): string {
  const isThere = matched === jobId || matched === (kind === "policy" ? policy : partition);
  return isThere ? "" : keyInWords(matched.split("\n")[0]);
}

/** What to give to `explain`. */
function explained({ kind, policy, partition, jobId, state }: SearchHit): string | undefined {
  if (jobId !== null) return jobId;
  if (kind === "policy" || policy === null || partition === null || state === "undeclared") return undefined;
  return `--policy ${quoted(policy)} --partition ${quoted(partition)}`;
}
