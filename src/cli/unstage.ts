import { unstage } from "../operate/unstage.ts";
import { defineCommand } from "./command.ts";
import { DRY_RUN, POLICY, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer, tell } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

/** Hands the waiting jobs of a policy that is off back to Graphile Worker. Safe to repeat. */
export const command = defineCommand({
  options: { ...POLICY, ...DRY_RUN, ...WHY },
  examples: [["--policy fetch_endpoint", "unstage the jobs of a policy that is off"]],
  about: "Switch the policy off before, with disable. adopt is the way back.",
  async run(values) {
    const { policy, "dry-run": dryRun } = values;
    const result = await changing(values, (context) =>
      unstage(context, { policy, dryRun, ...whyOf(values) }),
    );
    const { matched, changed, refused, expired } = result;
    if (refused > 0)
      tell(`Graphile Worker refuses ${some(refused, "job")}: see the column error of the view staged_jobs.`);
    const of = `${some(matched, "waiting job")} of policy "${policy}"`;
    return answer(
      values,
      result,
      dryRun
        ? `${of} would be unstaged.${dropped(expired, "would be")}`
        : `Unstaged ${grouped(changed - expired)} of ${of}.${dropped(expired, expired === 1 ? "was" : "were")}`,
    );
  },
});

function dropped(expired: number, are: string): string {
  return expired === 0
    ? ""
    : ` ${some(expired, "job")} ${are} dropped, because ${expired === 1 ? "it has" : "they have"} expired.`;
}
