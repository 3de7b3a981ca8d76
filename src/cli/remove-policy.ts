import { parseArgs } from "node:util";
import { ArgumentError } from "../errors.ts";
import { makePolicyUtils } from "../host/policy-utils.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

/** Removes a policy that no worker has any more. Safe to repeat. */
export const removePolicyCommand = {
  summary: "remove a policy that no worker has any more",
  help: `\
  --policy NAME          the policy to remove; default: none, it is required
  --into NAME            the policy that its waiting jobs move to; default: none may wait`,
  async run(args: string[]): Promise<void> {
    const options = { ...CONNECTION_OPTIONS, policy: { type: "string" }, into: { type: "string" } } as const;
    const { values } = parseArgs({ args, options });
    const connection = connectionOf(values);
    if (typeof values.policy !== "string") {
      throw new ArgumentError("remove-policy: no policy: give --policy NAME");
    }
    await using utils = await makePolicyUtils(connection);
    const { policy, into } = values;
    const { changed } = await utils.removePolicy({ policy, ...(into !== undefined && { into }) });
    if (into !== undefined) process.stdout.write(`Moved ${changed} waiting jobs to policy "${into}".\n`);
    process.stdout.write(`Removed policy "${policy}".\n`);
  },
};
