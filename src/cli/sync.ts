import { sync } from "../operate/sync.ts";
import { defineCommand, EXIT } from "./command.ts";
import { JSON_OPTION, LIMITER } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { say, sayJson } from "./output/say.ts";

/** Lowers a throttle to what the partner has left. */
export const command = defineCommand({
  options: {
    ...LIMITER,
    key: { kind: "text", meaning: "the scope key; a gate over the policy takes none", default: "none" },
    remaining: { kind: "number", meaning: "what is left of the partner's limit", required: true },
    "reset-at": { kind: "time", meaning: "when the partner's limit is whole again", default: "none" },
    ...JSON_OPTION,
  },
  examples: [["--policy fetch_endpoint --gate throttle --key ep1 --remaining 3", "the partner says 3"]],
  about:
    "It never raises a throttle. With --reset-at no more than that goes until then. If another transaction has the " +
    "throttle locked, it ends with exit code 1.",
  async run(values) {
    const { policy, gate, key, remaining, "reset-at": resetAt } = values;
    const result = await changing(values, (context) =>
      sync(context, { policy, gate, key, remaining, resetAt }),
    );
    const { lowered, tokens } = result;
    if (values.json) sayJson(result);
    else if (tokens === null) say(`Another transaction has gate ${gate} locked: try again.`);
    else if (lowered) say(`Lowered gate ${gate} to ${rounded(tokens)}.`);
    else say(`Gate ${gate} has ${rounded(tokens)}, which is no more: nothing changed.`);
    return tokens === null ? EXIT.failed : EXIT.done;
  },
});

/** To hundredths, never up. */
function rounded(tokens: number): number {
  return Math.floor(tokens * 100) / 100;
}
