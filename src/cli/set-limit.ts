import { limitInWords } from "../operate/gate-words.ts";
import { setLimit } from "../operate/limits.ts";
import { defineCommand, EXIT, UsageError } from "./command.ts";
import { NUMBERS, numbersOf } from "./input/numbers.ts";
import { DRY_RUN, LIMIT, limitedBy, WHY, whereOf, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answerReach, sayJson, saySentence, tell } from "./output/say.ts";
import { atTime } from "./output/words.ts";

/** Overrides a gate's numbers, for all keys or for one. */
export const command = defineCommand({
  options: {
    ...LIMIT,
    ...NUMBERS,
    from: { kind: "time", meaning: "when it begins: a time, or a duration from now", default: "now" },
    until: { kind: "time", meaning: "when it ends", default: "clear-limit" },
    ...DRY_RUN,
    ...WHY,
  },
  examples: [
    [
      '--policy fetch_endpoint --gate account --key acme --max 2 --until "1 hour"',
      "two jobs of acme at once",
    ],
    ["--policy fetch_endpoint --gate throttle --rate 0", "nothing goes, until clear-limit"],
    ["--policy fetch_endpoint --gate throttle --where plan=free --rate 5", "partitions with this context"],
  ],
  async run(values) {
    const { policy, gate, key, from, until, "dry-run": dryRun } = values;
    const where = whereOf(values.where);
    const set = numbersOf(values);
    if (Object.values(set).every((value) => value === undefined))
      throw new UsageError("give at least one number, such as --max or --rate");
    const result = await changing(values, (context) =>
      setLimit(context, { policy, gate, key, where, set, from, until, dryRun, ...whyOf(values) }),
    );
    const when = `${from ? `from ${atTime(from)} ` : ""}${until ? `until ${atTime(until)}` : "until clear-limit"}`;
    const words = `the limit of gate ${gate} for ${limitedBy({ key, where })} to ${limitInWords(set)}, ${when}`;
    if (dryRun) return answerReach(values, result, `Would set ${words}`);
    if (values.json) sayJson(result);
    else saySentence(`Set ${words}.`);
    if (result.stored)
      tell(
        where
          ? "No partition has this context yet: the limit applies as soon as one has."
          : "No job has had this key yet: the limit applies as soon as one has.",
      );
    return EXIT.done;
  },
});
