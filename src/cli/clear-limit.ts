import { clearLimit } from "../operate/limits.ts";
import { defineCommand } from "./command.ts";
import { LIMITER, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer } from "./output/say.ts";

/** Ends the limits that set-limit has set for the same target. */
export const command = defineCommand({
  options: { ...LIMITER, ...WHY },
  examples: [["--policy fetch_endpoint --gate account --key acme", "the limit of acme"]],
  about: "Without --key it ends the limit for every key, but not those of single keys.",
  async run(values) {
    const { policy, gate, key } = values;
    const result = await changing(values, (context) =>
      clearLimit(context, { policy, gate, key, ...whyOf(values) }),
    );
    const of = `gate ${gate} for ${key === undefined ? "every key" : key}`;
    return answer(
      values,
      result,
      result.changed > 0 ? `Ended the limit of ${of}.` : `No limit of ${of} was set.`,
    );
  },
});
