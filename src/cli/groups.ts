import { keyInWords } from "../operate/gate-words.ts";
import { type GroupJob, groups, type OpenGroup } from "../operate/groups.ts";
import { anId } from "../operate/verb.ts";
import { firstLine } from "../operate/words.ts";
import { defineCommand, UsageError } from "./command.ts";
import { LOOK, page } from "./input/options.ts";
import { looks } from "./output/look.ts";
import { answerList, tell } from "./output/say.ts";
import { table } from "./output/table.ts";
import { fromNow, grouped } from "./output/words.ts";

const MOST = 50;

/** Job groups whose callback has not been added yet, or the jobs of one. */
export const command = defineCommand({
  argument: { name: "group", kind: "text", meaning: "the id of one group, to list the jobs that are left" },
  options: {
    after: { kind: "text", meaning: "only ids after this: the last one of the page before", default: "none" },
    ...page(MOST),
    ...LOOK,
  },
  examples: [
    ["", "which groups are open"],
    ["7", "what group 7 waits for"],
  ],
  about: "A group goes when its callback is added. OLDEST LEFT is the job to ask explain about.",
  async run(values) {
    const { rest, after, limit = MOST } = values;
    const [group] = rest;
    for (const [name, id] of Object.entries({ group, "--after": after }))
      if (id !== undefined && !anId.accepts(id))
        throw new UsageError(`${name} must be an id, got ${JSON.stringify(id)}`);
    return looks(values, async (context) => {
      const found = await groups(context, { group, after, limit });
      const jobs = found[0]?.jobs;
      const exit = answerList(values, found, {
        table: () => (jobs === undefined ? groupTable(found) : `${groupTable(found)}\n\n${jobTable(jobs)}`),
        none: group === undefined ? "No job group is open." : `Job group ${group} is not open.`,
      });
      if (!values.json) found.forEach(tellError);
      const page = jobs ?? found;
      if (page.length >= limit) tell(`For more, add --after ${page.at(-1)?.id}`);
      return exit;
    });
  },
});

function groupTable(rows: readonly OpenGroup[]): string {
  return table(
    [
      { title: "ID", isNumber: true, value: ({ id }) => id },
      { title: "THEN", value: ({ policy, callback }) => policy ?? `(${callback})`, least: 8 },
      { title: "JOBS", isNumber: true, value: ({ total }) => grouped(total) },
      { title: "ENDED", isNumber: true, value: ({ total, jobsLeft }) => grouped(total - jobsLeft) },
      { title: "SUCCEEDED", isNumber: true, value: ({ succeeded }) => grouped(succeeded) },
      { title: "FAILED", isNumber: true, value: ({ failed }) => grouped(failed) },
      { title: "ADDED", value: ({ createdAt }) => fromNow(createdAt) },
      { title: "OLDEST LEFT", isNumber: true, value: ({ oldestJobId }) => oldestJobId ?? "" },
    ],
    rows,
  );
}

function jobTable(rows: readonly GroupJob[]): string {
  if (rows.length === 0) return "No job is left.";
  return table(
    [
      { title: "ID", isNumber: true, value: ({ id }) => id },
      { title: "STATE", value: ({ state }) => state ?? "ended unseen" },
      {
        title: "POLICY",
        value: ({ policy, taskIdentifier }) =>
          policy ?? (taskIdentifier === null ? "" : `(${taskIdentifier})`),
        least: 8,
      },
      { title: "PARTITION", value: ({ partition }) => keyInWords(partition), least: 10 },
      { title: "ATTEMPTS", isNumber: true, value: ({ attempts }) => grouped(attempts) },
      { title: "DUE", value: ({ state, runAt }) => (state === "failed" ? "never" : fromNow(runAt)) },
      { title: "ERROR", value: ({ lastError }) => firstLine(lastError) ?? "", least: 8 },
    ],
    rows,
  );
}

function tellError({ id, error }: OpenGroup): void {
  if (error !== null)
    tell(`${id}: its callback could not be added, and the next sweep tries again: ${error}`);
}
