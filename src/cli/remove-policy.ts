import { removePolicy } from "../operate/remove-policy.ts";
import { defineCommand, EXIT } from "./command.ts";
import { POLICY, WHY, whyOf, YES } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { onlyCounts, say, sayJson, saySentence, unlessYes } from "./output/say.ts";
import { some } from "./output/words.ts";

/** Removes a policy that no worker has any more. Safe to repeat. */
export const command = defineCommand({
  options: {
    ...POLICY,
    into: { kind: "text", meaning: "the policy that its waiting jobs move to", default: "none may wait" },
    ...YES,
    ...WHY,
  },
  examples: [
    ["--policy fetch_endpoint", "count the jobs that wait"],
    ["--policy fetch_endpoint --into fetch --yes", "rename it"],
  ],
  about: "Its partitions, limiters, limits and pauses go with it.",
  async run(values) {
    const { policy, into } = values;
    const dryRun = onlyCounts(values);
    const result = await changing(values, (context) =>
      removePolicy(context, { policy, into, dryRun, ...whyOf(values) }),
    );
    if (values.json) sayJson(result);
    else if (dryRun) saySentence(`Policy "${policy}" would be removed. ${fateOf(result.matched, into)}`);
    else {
      if (into !== undefined) say(`Moved ${some(result.changed, "waiting job")} to policy "${into}".`);
      say(`Removed policy "${policy}".`);
    }
    return dryRun ? unlessYes(values) : EXIT.done;
  },
});

function fateOf(waiting: number, into: string | undefined): string {
  if (into !== undefined) return `${some(waiting, "waiting job")} would move to policy "${into}".`;
  if (waiting === 0) return "No job waits.";
  return `${some(waiting, "waiting job")} must go before: give --into NAME, or unstage them.`;
}
