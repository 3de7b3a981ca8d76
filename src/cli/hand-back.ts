import { parseArgs } from "node:util";
import { ArgumentError } from "../errors.ts";
import { makePolicyUtils } from "../host/policy-utils.ts";
import { CONNECTION_OPTIONS, connectionOf } from "./connection.ts";

/** Hands the waiting jobs of a policy that is off back to Graphile Worker. Safe to repeat. */
export const handBackCommand = {
  summary: "hand a policy's waiting jobs back to Graphile Worker",
  help: `\
  --policy NAME          the policy, which must be off; default: none, it is required`,
  async run(args: string[]): Promise<void> {
    const options = { ...CONNECTION_OPTIONS, policy: { type: "string" } } as const;
    const { values } = parseArgs({ args, options });
    const connection = connectionOf(values);
    if (typeof values.policy !== "string") {
      throw new ArgumentError("hand-back: no policy: give --policy NAME");
    }
    await using utils = await makePolicyUtils(connection);
    const { changed, matched, refused } = await utils.handBack({ policy: values.policy });
    process.stdout.write(`Handed back ${changed} of ${matched} waiting jobs of policy "${values.policy}".\n`);
    if (refused > 0) {
      process.stdout.write(
        `Graphile Worker refuses ${refused} of them: see the column error of the view staged_jobs.\n`,
      );
    }
  },
};
