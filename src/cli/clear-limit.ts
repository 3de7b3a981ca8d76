import { clearLimit } from "../operate/limits.ts";
import { defineCommand } from "./command.ts";
import { DRY_RUN, LIMIT, limitedBy, WHY, whereOf, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerReach } from "./output/say.ts";

/** Ends the limits that set-limit has set for the same target. */
export const command = defineCommand({
  options: { ...LIMIT, ...DRY_RUN, ...WHY },
  examples: [["--policy fetch_endpoint --gate account --key acme", "the limit of acme"]],
  about:
    "Without --key and --where it ends the limit for every key, but not those of single keys and contexts.",
  async run(values) {
    const { policy, gate, key, "dry-run": dryRun } = values;
    const where = whereOf(values.where);
    const result = await changing(values, (context) =>
      clearLimit(context, { policy, gate, key, where, dryRun, ...whyOf(values) }),
    );
    const of = `gate ${gate} for ${limitedBy({ key, where })}`;
    if (dryRun && result.matched > 0) return answerReach(values, result, `Would end the limit of ${of}`);
    return answer(
      values,
      result,
      result.changed > 0 ? `Ended the limit of ${of}.` : `No limit of ${of} ${dryRun ? "is" : "was"} set.`,
    );
  },
});
