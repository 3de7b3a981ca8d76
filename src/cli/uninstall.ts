import { parseArgs } from "node:util";
import { isInstalled } from "../db/installed.ts";
import { makePolicyUtils } from "../host/policy-utils.ts";
import { TICK_TASK } from "../policy/job.ts";
import { schemaOf } from "../settings.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

/** Hands all waiting jobs back to Graphile Worker, and drops this package's schema. Safe to repeat. */
export const uninstallCommand = {
  summary: "hand all waiting jobs back to Graphile Worker, and drop the schema",
  help: `\
  --force                uninstall although worker pools with the preset live; default: off`,
  async run(args: string[]): Promise<void> {
    const options = { ...CONNECTION_OPTIONS, force: { type: "boolean" } } as const;
    const { values } = parseArgs({ args, options });
    const connection = connectionOf(values);
    const schema = schemaOf(connection.policySchema);
    if (!(await isInstalled(connection.connectionString, schema))) {
      process.stdout.write(`There is no schema "${schema}": nothing to do.\n`);
      return;
    }
    await using utils = await makePolicyUtils(connection);
    const { handedBack, parked, replaced, unlocked, tickJobs } = await utils.uninstall({
      force: values.force === true,
    });
    process.stdout.write(
      `Handed back ${handedBack} waiting jobs to Graphile Worker; ${parked} of them wait for their retry.\n` +
        `Left out ${replaced} jobs, because a newer job of their key is there.\n` +
        `Unlocked ${unlocked} jobs of workers that were killed.\n` +
        `Removed ${tickJobs} jobs of the task ${TICK_TASK}.\n` +
        `Dropped the schema "${schema}".\n`,
    );
  },
};
