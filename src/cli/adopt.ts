import { parseArgs } from "node:util";
import { ArgumentError } from "../errors.ts";
import { makePolicyUtils, type PolicyUtils } from "../host/policy-utils.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

/** Moves the jobs of tasks with a policy that wait in Graphile Worker into staging. Safe while workers run, and to repeat. */
export const adoptCommand = {
  summary: "move waiting jobs of --task NAME under its policy",
  help: `\
  --task NAME            a task with a policy; may be given several times; default: none, it is required
  --dry-run              only count the jobs; default: off`,
  async run(args: string[]): Promise<void> {
    const { values } = parseArgs({
      args,
      options: {
        ...CONNECTION_OPTIONS,
        task: { type: "string", multiple: true },
        "dry-run": { type: "boolean" },
      },
    });
    if (!values.task) throw new ArgumentError("no task: give --task NAME, once or several times");
    const utils = await makePolicyUtils(connectionOf(values));
    try {
      await adoptTasks(utils, values.task, values["dry-run"]);
    } finally {
      await utils.release();
    }
  },
};

/** Adopts the waiting jobs of these tasks, one task after the other, and says how many. */
export async function adoptTasks(
  utils: PolicyUtils,
  tasks: readonly string[],
  dryRun = false,
): Promise<void> {
  for (const task of tasks) {
    const { matched, changed } = await utils.adopt({ task, dryRun });
    const said = dryRun ? `${matched} jobs wait in Graphile Worker` : `adopted ${changed} of ${matched} jobs`;
    process.stdout.write(`${task}: ${said}.\n`);
  }
}
