import { parse, rawJSON } from "../exact-json.ts";
import { type ExportOptions, exportJobs } from "../operate/export.ts";
import { runVerb } from "../operate/verbs.ts";
import { defineCommand, EXIT, UsageError } from "./command.ts";
import { DRY_RUN, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, sayJson, tell } from "./output/say.ts";
import { some } from "./output/words.ts";

/** Writes staged jobs, one line each. */
export const command = defineCommand({
  argument: { name: "ids", kind: "texts", meaning: "ids of staged jobs" },
  options: {
    policy: { kind: "text", meaning: "all of this policy", default: "none" },
    partition: { kind: "text", meaning: "only those of this partition", default: "all" },
    ...DRY_RUN,
    ...WHY,
  },
  examples: [["--policy fetch_endpoint --partition ep1 > ep1.ndjson", "keep the jobs of a partition"]],
  about: "Each line is a job as JSON, with its payload. Its spec is what addJobs takes.",
  async run(values) {
    const { rest: ids, policy, partition } = values;
    if (ids.length === 0 && policy === undefined)
      throw new UsageError("no jobs: give their ids, or --policy NAME");
    const options = { ...(ids.length > 0 && { ids }), policy, partition } as ExportOptions;
    return changing(values, async (context) => {
      if (values["dry-run"]) {
        const result = await runVerb(context, "remove", { ...options, dryRun: true });
        return answer(values, result, `${some(result.matched, "staged job")} would be written.`);
      }
      let count = 0;
      for await (const job of exportJobs(context, { ...options, ...whyOf(values) }, exactly)) {
        sayJson(job);
        count++;
      }
      tell(count === 0 ? "No staged job matches." : `Wrote ${some(count, "staged job")}.`);
      return count === 0 ? EXIT.nothing : EXIT.done;
    });
  },
});

/** A payload that `JSON.stringify` writes with all digits of its numbers. JavaScript cannot count beyond 2^53. */
function exactly(payload: string): unknown {
  return parse(payload, (_, value, { source }) => (typeof value === "number" ? rawJSON(source) : value));
}
