import { type AdoptOptions, adopt } from "../operate/adopt.ts";
import type { Changed } from "../operate/targets.ts";
import { defineCommand, EXIT, type Exit } from "./command.ts";
import { DRY_RUN, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Moves the jobs of tasks with a policy that wait in Graphile Worker into staging. Safe while workers run, and to repeat. */
export const command = defineCommand({
  options: {
    task: { kind: "texts", required: true, meaning: "a task with a policy; may be repeated" },
    ...DRY_RUN,
    ...WHY,
  },
  examples: [
    ["--task fetch_endpoint --dry-run", "count the jobs"],
    ["--task fetch_endpoint", "move them"],
  ],
  about: "It is safe while workers run, and safe to repeat. hand-back is the way back.",
  async run(values) {
    return changing(values, async (context) => {
      const exits = [];
      for (const task of values.task) {
        const options = { task, dryRun: values["dry-run"], ...whyOf(values) };
        exits.push(await adoptTask((one) => adopt(context, one), values, options));
      }
      return exits.includes(EXIT.done) ? EXIT.done : EXIT.nothing;
    });
  },
});

/** Adopts the waiting jobs of a task, and says how many. */
export async function adoptTask(
  adopts: (options: AdoptOptions) => Promise<Changed>,
  values: { readonly json: boolean },
  options: AdoptOptions,
): Promise<Exit> {
  const { task, dryRun } = options;
  const { matched, changed } = await adopts(options);
  const words = dryRun
    ? `${some(matched, "job")} to adopt`
    : `adopted ${grouped(changed)} of ${some(matched, "job")}`;
  return answer(values, { task, matched, changed }, `${task}: ${words}.`);
}
