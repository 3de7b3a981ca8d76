import { isInstalled } from "../db/installed.ts";
import { looking } from "../db/looking.ts";
import { internalOf } from "../db/schemas.ts";
import { status } from "../operate/status.ts";
import { TICK_TASK } from "../policy/job.ts";
import { defineCommand, EXIT, type Exit } from "./command.ts";
import { JSON_OPTION, YES } from "./input/options.ts";
import { inPlace, type Place, placeOf } from "./input/place.ts";
import { onlyCounts, say, sayJson, saySentence, tell, unlessYes } from "./output/say.ts";
import { fromNow, grouped, some } from "./output/words.ts";

/** Unstages all waiting jobs, and drops this package's schema. Safe to repeat. */
export const command = defineCommand({
  options: {
    force: { kind: "flag", meaning: "uninstall although worker pools with the preset live", default: "off" },
    ...YES,
    ...JSON_OPTION,
  },
  examples: [
    ["", "count the jobs that would go back"],
    ["--yes", "uninstall"],
  ],
  about: "The audit goes with the schema, so it takes no reason. Stop workers that have the preset before.",
  async run(values): Promise<Exit> {
    const place = await placeOf(values);
    const schema = place.policySchema;
    if (!(await isInstalled(place.connectionString, schema))) {
      if (values.json) sayJson({ unstaged: 0, dropped: false });
      else say(`There is no schema "${schema}": nothing to do.`);
      return EXIT.done;
    }
    if (onlyCounts(values)) return countIn(place, values);
    await using utils = await (await import("./input/utils.ts")).openUtils(place);
    const result = await utils.uninstall({ force: values.force });
    const { unstaged, parked, replaced, expired, unlocked, tickJobs } = result;
    if (values.json) sayJson({ ...result, dropped: true });
    else {
      say(`Unstaged ${some(unstaged, "waiting job")}, of which ${grouped(parked)} had failed before.`);
      say(`Left out ${some(replaced, "job")}, because a newer job of their key is there.`);
      say(`Dropped ${some(expired, "job")}, because they had expired.`);
      say(`Unlocked ${some(unlocked, "job")} of workers that were killed.`);
      say(`Removed ${some(tickJobs, "job")} of the task ${TICK_TASK}.`);
      say(`Dropped the schemas "${schema}" and "${internalOf(schema)}".`);
    }
    return EXIT.done;
  },
});

async function countIn(
  place: Place,
  values: { readonly json: boolean; readonly "dry-run": boolean },
): Promise<Exit> {
  const { policies, undeclared, workers } = await inPlace(place, looking, (context) => status(context));
  const staged = [...policies, ...undeclared].reduce((sum, policy) => sum + policy.staged, 0);
  const live = workers.filter(({ alive }) => alive);
  const liveWorkers = live.length;
  if (values.json) sayJson({ policies: policies.length, staged, liveWorkers });
  else {
    saySentence(
      `${some(staged, "waiting job")} would go back to Graphile Worker, and the schema "${place.policySchema}" would be dropped.`,
    );
    if (liveWorkers > 0)
      tell(
        `It would refuse, because live worker pools have the preset (${liveWorkers}): stop them first. ` +
          `If all were killed, the last counts as dead ${fromNow(new Date(Math.max(...live.map(({ staleAt }) => staleAt.getTime()))))}.`,
      );
  }
  return unlessYes(values);
}
