import { resume } from "../operate/resume.ts";
import { defineCommand } from "./command.ts";
import { DRY_RUN, named, TARGET, targetOf, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerReach } from "./output/say.ts";

/** Ends a pause; of a partition also a hold. */
export const command = defineCommand({
  options: { ...TARGET, ...DRY_RUN, ...WHY },
  examples: [
    ["--policy fetch_endpoint --partition ep1", "one partition, also if it is on hold"],
    ["--policy fetch_endpoint", "the policy, but not partitions that were paused one by one"],
    ["--all", "every policy, also those to be declared"],
  ],
  async run(values) {
    const target = targetOf(values);
    const dryRun = values["dry-run"];
    const result = await changing(values, (context) =>
      resume(context, { ...target, dryRun, ...whyOf(values) }),
    );
    if (dryRun) return answerReach(values, result, `Would resume ${named(target)}`);
    const words = result.changed > 0 ? `Resumed ${named(target)}.` : `Nothing had stopped ${named(target)}.`;
    return answer(values, result, words);
  },
});
