import { pause } from "../operate/pause.ts";
import { defineCommand } from "./command.ts";
import { DRY_RUN, named, TARGET, targetOf, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, answerReach, tell } from "./output/say.ts";
import { atTime } from "./output/words.ts";

/** Stops admission of a partition, a policy or all. */
export const command = defineCommand({
  options: {
    ...TARGET,
    until: { kind: "time", meaning: "when it ends: a time, or a duration from now", default: "resume" },
    ...DRY_RUN,
    ...WHY,
  },
  examples: [
    ['--policy fetch_endpoint --partition ep1 --reason "incident 12"', "one partition"],
    ['--all --until "30 minutes"', "everything, for half an hour"],
    ["--policy fetch_endpoint --dry-run", "count what it would stop"],
  ],
  about:
    "Jobs in flight go on. Jobs can still be added; they wait. --all also stops policies that are declared later.",
  async run(values) {
    const target = targetOf(values);
    const { until, "dry-run": dryRun } = values;
    const result = await changing(values, (context) =>
      pause(context, { ...target, until, dryRun, ...whyOf(values) }),
    );
    const words = `${named(target)}, ${until ? `until ${atTime(until)}` : "until resume"}`;
    if (dryRun) return answerReach(values, result, `Would pause ${words}`);
    const exit = answer(values, result, `Paused ${words}.`);
    if (result.stored)
      tell(
        "all" in target
          ? "No policy was declared yet: the pause waits for the first."
          : "No job has had this key yet: the pause waits for the first.",
      );
    return exit;
  },
});
