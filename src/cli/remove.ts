import { type RemoveOptions, remove } from "../operate/remove.ts";
import { defineCommand, UsageError } from "./command.ts";
import { WHY, whyOf, YES } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerCount, onlyCounts } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Removes staged jobs. */
export const command = defineCommand({
  argument: {
    name: "ids",
    kind: "texts",
    meaning: "ids of staged jobs; of failed ones that wait for their retry also Graphile Worker's",
  },
  options: {
    policy: { kind: "text", meaning: "only those of this policy; without ids all of them", default: "any" },
    partition: { kind: "text", meaning: "only those of this partition", default: "any" },
    "job-key": { kind: "text", meaning: "only the job of this key", default: "any" },
    ...YES,
    ...WHY,
  },
  examples: [
    ["--policy fetch_endpoint --partition ep1", "count the jobs of a partition"],
    ["1000000000000042 --yes", "remove one job"],
  ],
  about:
    "Admitted jobs stay, also those whose id is given: cancel ends them. A job must match all that is given.",
  async run(values) {
    const { rest: ids, policy, partition, "job-key": jobKey } = values;
    if (ids.length === 0 && policy === undefined && jobKey === undefined)
      throw new UsageError("no jobs: give their ids, --job-key KEY or --policy NAME");
    const dryRun = onlyCounts(values);
    const which = { ...(ids.length > 0 && { ids }), policy, partition, jobKey };
    const options = { ...which, dryRun, ...whyOf(values) } as RemoveOptions;
    const result = await changing(values, (context) => remove(context, options));
    const { matched, changed } = result;
    if (dryRun) return answerCount(values, result, `${some(matched, "staged job")} would be removed.`);
    return answer(values, result, `Removed ${grouped(changed)} of ${some(matched, "staged job")}.`);
  },
});
