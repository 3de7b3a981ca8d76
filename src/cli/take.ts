import { take } from "../operate/take.ts";
import { defineCommand, EXIT } from "./command.ts";
import { JSON_OPTION, LIMITER } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { say, sayJson } from "./output/say.ts";
import { atTime } from "./output/words.ts";

/** Takes tokens from a throttle, and never waits. */
export const command = defineCommand({
  options: {
    ...LIMITER,
    key: { kind: "text", meaning: "the scope key; a gate over the policy takes none", default: "none" },
    cost: { kind: "number", meaning: "how many tokens", default: "1" },
    ...JSON_OPTION,
  },
  examples: [["--policy fetch_endpoint --gate all && curl https://partner.example", "ask before a call"]],
  about: "Without enough tokens it takes none, says when to ask again, and ends with exit code 1.",
  async run(values) {
    const { policy, gate, key, cost } = values;
    const result = await changing(values, (context) => take(context, { policy, gate, key, cost }));
    const { taken, retryAt } = result;
    if (values.json) sayJson(result);
    else if (taken) say(`Took ${cost ?? 1} of gate ${gate}.`);
    else say(`Not enough tokens of gate ${gate}${retryAt ? `: ask again at ${atTime(retryAt)}` : ""}.`);
    return taken ? EXIT.done : EXIT.failed;
  },
});
