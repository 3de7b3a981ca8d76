import { move } from "../operate/move.ts";
import { defineCommand, UsageError } from "./command.ts";
import { POLICY, WHY, whyOf, YES } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerCount, onlyCounts } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Moves the staged jobs of a partition. */
export const command = defineCommand({
  argument: { name: "ids", kind: "texts", meaning: "only these, ids of staged jobs" },
  options: {
    ...POLICY,
    partition: { kind: "text", required: true, meaning: "the key of the partition that they leave" },
    "to-partition": {
      kind: "text",
      meaning: "the key of the other one",
      default: "--to-policy works it out",
    },
    "to-policy": { kind: "text", meaning: "the policy that gets them", default: "the same" },
    ...YES,
    ...WHY,
  },
  examples: [
    ["--policy fetch_endpoint --partition acme --to-partition acme-eu", "count the jobs"],
    ["--policy fetch_endpoint --partition acme --to-partition acme-eu --yes", "move them"],
  ],
  about: "Jobs in flight stay. To take it back, move them again.",
  async run(values) {
    const { rest: ids, policy, partition, "to-partition": toPartition, "to-policy": toPolicy } = values;
    if (toPartition === undefined && toPolicy === undefined)
      throw new UsageError("nowhere to go: give --to-partition KEY or --to-policy NAME");
    const dryRun = onlyCounts(values);
    const where = { policy, partition, toPartition, toPolicy, ...(ids.length > 0 && { ids }) };
    const result = await changing(values, (context) => move(context, { ...where, dryRun, ...whyOf(values) }));
    const { matched, changed } = result;
    const into = [
      toPartition !== undefined && `partition ${toPartition}`,
      toPolicy !== undefined && `policy ${toPolicy}`,
    ].filter(Boolean);
    const to = into.join(" of ");
    if (dryRun) return answerCount(values, result, `${some(matched, "staged job")} would move to ${to}.`);
    return answer(values, result, `Moved ${grouped(changed)} of ${some(matched, "staged job")} to ${to}.`);
  },
});
