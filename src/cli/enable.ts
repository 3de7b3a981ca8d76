import { switchPolicy } from "../operate/switch.ts";
import { defineCommand } from "./command.ts";
import { POLICY, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer } from "./output/say.ts";

/** Switches a policy on, whatever its declaration says. */
export const command = defineCommand({
  options: { ...POLICY, ...WHY },
  examples: [["--policy fetch_endpoint", "its gates apply again"]],
  async run(values) {
    const { policy } = values;
    const result = await changing(values, (context) =>
      switchPolicy(context, { policy, enabled: true, ...whyOf(values) }),
    );
    const words = result.changed > 0 ? `Policy ${policy} is on.` : `Policy ${policy} was on already.`;
    return answer(values, result, words);
  },
});
