import { type RetryOptions, retry } from "../operate/retry.ts";
import { defineCommand, UsageError } from "./command.ts";
import { DRY_RUN, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Brings back jobs that have failed for good. */
export const command = defineCommand({
  argument: {
    name: "ids",
    kind: "texts",
    meaning: "ids of jobs, Graphile Worker's or those they had in staging",
  },
  options: {
    policy: { kind: "text", meaning: "the policy of the jobs", default: "none" },
    partition: { kind: "text", meaning: "only those of this partition", default: "all" },
    since: {
      kind: "past",
      meaning: "only those that failed since: a time, or a duration ago",
      default: "whenever",
    },
    until: { kind: "past", meaning: "only those that failed before", default: "now" },
    error: {
      kind: "text",
      meaning: "only those whose last error contains this",
      default: "whatever it says",
    },
    ...DRY_RUN,
    ...WHY,
  },
  examples: [
    ['--policy fetch_endpoint --since "2 hours" --error 502 --dry-run', "count them"],
    ["4711 4712", "bring back two jobs"],
  ],
  about: "They have all their attempts again, and pass their gates.",
  async run(values) {
    const { rest: ids, policy, partition, since, until, error, "dry-run": dryRun } = values;
    if (ids.length === 0 && policy === undefined)
      throw new UsageError("no jobs: give their ids, or --policy NAME");
    const which = { ...(ids.length > 0 && { ids }), policy, partition } as RetryOptions;
    const result = await changing(values, (context) =>
      retry(context, { ...which, since, until, error, dryRun, ...whyOf(values) }),
    );
    const { matched, changed } = result;
    return answer(
      values,
      result,
      dryRun
        ? `${some(matched, "failed job")} would be brought back.`
        : `Brought back ${grouped(changed)} of ${some(matched, "failed job")}.`,
    );
  },
});
