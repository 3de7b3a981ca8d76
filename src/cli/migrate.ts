import { makePolicyUtils } from "../host/policy-utils.ts";
import { readConnection } from "./connection.ts";

/** Installs or upgrades Graphile Worker's schema and this package's. Safe while workers run, and to repeat. */
export const migrateCommand = {
  summary: "install or upgrade the database schemas",
  async run(args: string[]): Promise<void> {
    const utils = await makePolicyUtils(readConnection(args));
    await utils.release();
    process.stdout.write("Schemas are up to date.\n");
  },
};
