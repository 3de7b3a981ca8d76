import { keyInWords } from "../operate/gate-words.ts";
import { history, type JobHistory } from "../operate/history.ts";
import { OUTCOMES, type Outcome } from "../operate/outcomes.ts";
import { defineCommand, UsageError } from "./command.ts";
import { LOOK, page } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList } from "./output/say.ts";
import { table } from "./output/table.ts";
import { atLocalTime, waitsInWords } from "./output/words.ts";

const MOST = 50;

/** What happened to jobs, those that ended last first. */
export const command = defineCommand({
  options: {
    policy: { kind: "text", meaning: "only this policy's", default: "all" },
    partition: { kind: "text", meaning: "only those of this partition", default: "all" },
    outcome: {
      kind: "text",
      meaning: `only those with this outcome: ${OUTCOMES.join(", ")}`,
      default: "all",
    },
    since: {
      kind: "past",
      meaning: "only those that ended since: a time, or a duration ago",
      default: "all",
    },
    ...page(MOST),
    ...LOOK,
  },
  examples: [
    ['--policy fetch_endpoint --since "2 hours"', "what has ended tonight"],
    ["--outcome failed --json", "what has failed for good, with all that is known"],
  ],
  about:
    "Of policies with the option history. Jobs that have not ended stand first. WAITED is the whole wait, with the reason that took longest; explain and --json have all.",
  async run(values) {
    const { policy, partition, since, limit = MOST } = values;
    const outcome = values.outcome as Outcome | undefined;
    if (outcome !== undefined && !OUTCOMES.includes(outcome))
      throw new UsageError(`--outcome must be ${OUTCOMES.join(", ")}, got ${JSON.stringify(outcome)}`);
    return looks(values, async (context) => {
      const found = await history(context, { policy, partition, outcome, since, limit });
      return answerList(values, found, {
        table: (rows) => historyTable(rows, policy === undefined),
        none: "No job matches. Only policies with the option history keep any.",
      });
    });
  },
});

function historyTable(rows: readonly JobHistory[], ofAll: boolean): string {
  const where = ofAll ? { title: "POLICY/PARTITION", least: 12 } : { title: "PARTITION", least: 9 };
  return table(
    [
      // no room for the year
      { title: "ENDED", value: ({ endedAt }) => (endedAt ? atLocalTime(endedAt).slice(5) : "not yet") },
      { title: "OUTCOME", value: ({ outcome }) => outcome ?? "" },
      { title: "ID", isNumber: true, value: ({ id }) => id },
      {
        ...where,
        value: ({ policy, partition }) =>
          ofAll ? `${policy}/${keyInWords(partition)}` : keyInWords(partition),
      },
      { title: "WAITED", value: ({ waited }) => waitsInWords(waited, 1), least: 10 },
      { title: "ERROR", value: ({ error }) => error ?? "", least: 8 },
    ],
    rows,
  );
}
