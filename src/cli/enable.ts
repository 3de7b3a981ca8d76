import { switchPolicy } from "../operate/switch.ts";
import { defineCommand } from "./command.ts";
import { DRY_RUN, POLICY, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerReach } from "./output/say.ts";

/** Switches a policy on, whatever its declaration says. */
export const command = defineCommand({
  options: { ...POLICY, ...DRY_RUN, ...WHY },
  examples: [["--policy fetch_endpoint", "its gates apply again"]],
  async run(values) {
    const { policy, "dry-run": dryRun } = values;
    const result = await changing(values, (context) =>
      switchPolicy(context, { policy, enabled: true, dryRun, ...whyOf(values) }),
    );
    if (dryRun) return answerReach(values, result, `Would switch policy ${policy} on`);
    const words = result.changed > 0 ? `Policy ${policy} is on.` : `Policy ${policy} was on already.`;
    return answer(values, result, words);
  },
});
