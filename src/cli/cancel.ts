import { type Cancelled, type CancelOptions, cancel } from "../operate/cancel.ts";
import { defineCommand, UsageError } from "./command.ts";
import { WHY, whyOf, YES } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerCount, onlyCounts } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Cancels jobs, and tells those that run to end. */
export const command = defineCommand({
  argument: { name: "ids", kind: "texts", meaning: "ids of jobs, staged or Graphile Worker's" },
  options: {
    policy: { kind: "text", meaning: "all of this policy", default: "none" },
    partition: { kind: "text", meaning: "only those of this partition", default: "all" },
    ...YES,
    ...WHY,
  },
  examples: [
    ["--policy fetch_endpoint --partition ep1", "count the jobs of a partition"],
    ['1000000000000042 --yes --reason "wrong batch"', "cancel one job"],
  ],
  about:
    "Jobs that run are told to end, and keep their slots until they do. A job must match all that is given.",
  async run(values) {
    const { rest: ids, policy, partition } = values;
    if (ids.length === 0 && policy === undefined)
      throw new UsageError("no jobs: give their ids, or --policy NAME");
    const dryRun = onlyCounts(values);
    const options = {
      ...(ids.length > 0 && { ids }),
      policy,
      partition,
      dryRun,
      ...whyOf(values),
    } as CancelOptions;
    const result = await changing(values, (context) => cancel(context, options));
    const { matched, changed } = result;
    if (dryRun)
      return answerCount(
        values,
        result,
        `${some(matched, "job")} would be cancelled.${told(result, "would be")}`,
      );
    const are = result.running === 1 ? "was" : "were";
    return answer(
      values,
      result,
      `Cancelled ${grouped(changed)} of ${some(matched, "job")}.${told(result, are)}`,
    );
  },
});

/** The runs that may go on for a while. */
function told({ matched, running }: Cancelled, are: string): string {
  if (running === 0) return "";
  const they =
    running === 1 ? `${matched === 1 ? "It" : "1 of them"} runs` : `${grouped(running)} of them run`;
  return ` ${they}, and ${are} told to end.`;
}
