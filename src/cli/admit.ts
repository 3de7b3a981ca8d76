import { type AdmitOptions, admit } from "../operate/admit.ts";
import { defineCommand, UsageError } from "./command.ts";
import { named, POLICY, WHY, whyOf, YES } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerCount, onlyCounts } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Admits due jobs past their gates, pauses and holds. */
export const command = defineCommand({
  options: {
    ...POLICY,
    partition: { kind: "text", meaning: "the key of one of its partitions", default: "the whole policy" },
    count: { kind: "number", meaning: "how many jobs at most; or instead of it:", default: "none" },
    drain: { kind: "flag", meaning: "all that are due, at most 10,000", default: "off" },
    ...YES,
    ...WHY,
  },
  examples: [
    ["--policy fetch_endpoint --partition ep1 --count 5", "count them"],
    ["--policy fetch_endpoint --partition ep1 --count 5 --yes", "admit them"],
  ],
  about: "The gates are still charged: tokens stop at 0, and more jobs than max may be in flight.",
  async run(values) {
    const { policy, partition, count, drain } = values;
    if ((count === undefined) === !drain) throw new UsageError("give --count N or --drain");
    const dryRun = onlyCounts(values);
    const howMany = drain ? { drain } : { count };
    const options = { policy, partition, ...howMany, dryRun, ...whyOf(values) } as AdmitOptions;
    const result = await changing(values, (context) => admit(context, options));
    const of = `of ${named({ policy, partition })}`;
    const later = result.notDue > 0 ? ` ${grouped(result.notDue)} are not due.` : "";
    if (dryRun)
      return answerCount(
        values,
        result,
        `${some(result.matched, "due job")} ${of} would be admitted.${later}`,
      );
    return answer(values, result, `Admitted ${some(result.changed, "job")} ${of}.${later}`);
  },
});
