import { parseArgs } from "node:util";
import { makePolicyUtils } from "../host/policy-utils.ts";
import { adoptTasks } from "./adopt.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

/** Installs or upgrades Graphile Worker's schema and this package's. Safe while workers run, and to repeat. */
export const migrateCommand = {
  summary: "install or upgrade the database schemas",
  help: `\
  --adopt NAME           a task whose waiting jobs are adopted too; may be given several times; default: none`,
  async run(args: string[]): Promise<void> {
    const { values } = parseArgs({
      args,
      options: { ...CONNECTION_OPTIONS, adopt: { type: "string", multiple: true } },
    });
    const utils = await makePolicyUtils(connectionOf(values));
    try {
      process.stdout.write("Schemas are up to date.\n");
      await adoptTasks(utils, values.adopt ?? []);
    } finally {
      await utils.release();
    }
  },
};
