import { clearLimit } from "../operate/limits.ts";
import { defineCommand } from "./command.ts";
import { LIMIT, limitedBy, WHY, whereOf, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer } from "./output/say.ts";

/** Ends the limits that set-limit has set for the same target. */
export const command = defineCommand({
  options: { ...LIMIT, ...WHY },
  examples: [["--policy fetch_endpoint --gate account --key acme", "the limit of acme"]],
  about:
    "Without --key and --where it ends the limit for every key, but not those of single keys and contexts.",
  async run(values) {
    const { policy, gate, key } = values;
    const where = whereOf(values.where);
    const result = await changing(values, (context) =>
      clearLimit(context, { policy, gate, key, where, ...whyOf(values) }),
    );
    const of = `gate ${gate} for ${limitedBy({ key, where })}`;
    return answer(
      values,
      result,
      result.changed > 0 ? `Ended the limit of ${of}.` : `No limit of ${of} was set.`,
    );
  },
});
