import { keyInWords } from "../operate/gate-words.ts";
import { JOB_STATES, type JobRow, parameter, rowsOf } from "../operate/view-rows.ts";
import { firstLine } from "../operate/words.ts";
import { defineCommand, UsageError } from "./command.ts";
import { LOOK, page } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList, tell } from "./output/say.ts";
import { table } from "./output/table.ts";
import { fromNow } from "./output/words.ts";

const MOST = 50;

const [POLICY, PARTITION, STATE, AFTER] = [
  parameter(1, "text"),
  parameter(2, "text"),
  parameter(3, "text"),
  parameter(4, "id"),
];
const WHERE = `where (${POLICY} is null or policy = ${POLICY}) and (${PARTITION} is null or partition = ${PARTITION})
  and (${STATE} is null or state = ${STATE}) and (${AFTER} is null or id > ${AFTER})
  order by id limit ${parameter(5, "int")}`;

/** Jobs, staged ones and Graphile Worker's. */
export const command = defineCommand({
  options: {
    policy: { kind: "text", meaning: "only this policy's", default: "all" },
    partition: { kind: "text", meaning: "only those of this partition", default: "all" },
    state: { kind: "text", meaning: `only those that are ${JOB_STATES.join(", ")}`, default: "all" },
    after: { kind: "text", meaning: "only ids after this: the last one of the page before", default: "none" },
    ...page(MOST),
    ...LOOK,
  },
  examples: [["--policy fetch_endpoint --state failed", "jobs that have failed for good"]],
  about: "They are in the order of their ids. Payloads are not shown.",
  async run(values) {
    const { policy, partition = null, state = null, after = null, limit = MOST } = values;
    if (state !== null && !JOB_STATES.includes(state))
      throw new UsageError(`--state must be ${JOB_STATES.join(", ")}, got ${JSON.stringify(state)}`);
    if (after !== null && !/^\d{1,18}$/.test(after))
      throw new UsageError(`--after must be the id of a job, got ${JSON.stringify(after)}`);
    return looks(values, async (context) => {
      const asked = [policy ?? null, partition, state, after, limit];
      const found = await rowsOf<JobRow>(context, "jobs", WHERE, asked, policy);
      const exit = answerList(values, found, { table: jobTable, none: "No job matches." });
      if (found.length >= limit) tell(`For more, add --after ${found.at(-1)?.id}`);
      return exit;
    });
  },
});

function jobTable(rows: readonly JobRow[]): string {
  return table(
    [
      { title: "ID", isNumber: true, value: ({ id }) => id },
      { title: "STATE", value: ({ state }) => state },
      { title: "POLICY", value: ({ policy, taskIdentifier }) => policy ?? `(${taskIdentifier})`, least: 8 },
      { title: "PARTITION", value: ({ partition }) => keyInWords(partition), least: 10 },
      {
        title: "ATTEMPTS",
        isNumber: true,
        value: ({ attempts, maxAttempts }) => `${attempts} of ${maxAttempts}`,
      },
      // Graphile Worker gives a job a time also after its last attempt
      { title: "DUE", value: ({ state, runAt }) => (state === "failed" ? "never" : fromNow(runAt)) },
      { title: "ERROR", value: ({ lastError }) => firstLine(lastError) ?? "", least: 8 },
    ],
    rows,
  );
}
