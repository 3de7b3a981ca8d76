import { switchPolicy } from "../operate/switch.ts";
import { defineCommand } from "./command.ts";
import { POLICY, WHY, whyOf, YES } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerCount, onlyCounts } from "./output/say.ts";
import { some } from "./output/words.ts";

/** Switches a policy off, whatever its declaration says. Nothing takes back what ticks admit then. */
export const command = defineCommand({
  options: { ...POLICY, ...YES, ...WHY },
  examples: [
    ["--policy fetch_endpoint", "count the jobs that would go past the gates"],
    ['--policy fetch_endpoint --yes --reason "no limits today"', "switch it off"],
  ],
  about: "It stays off through restarts and deploys, until enable. To stop jobs instead, use pause.",
  async run(values) {
    const { policy } = values;
    const dryRun = onlyCounts(values);
    const result = await changing(values, (context) =>
      switchPolicy(context, { policy, enabled: false, dryRun, ...whyOf(values) }),
    );
    if (dryRun) {
      const jobs = some(result.staged ?? 0, "staged job");
      return answerCount(values, result, `Ticks would admit ${jobs} past the gates.`);
    }
    const words =
      result.changed > 0 ? `Policy ${policy} is off: no gate applies.` : `Policy ${policy} was off already.`;
    return answer(values, result, words);
  },
});
