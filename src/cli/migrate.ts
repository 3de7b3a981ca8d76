import { connected } from "../db/looking.ts";
import { adoptTask } from "./adopt.ts";
import { defineCommand, EXIT, type Exit } from "./command.ts";
import { WHY, whyOf } from "./input/options.ts";
import { inPlace, placeOf } from "./input/place.ts";
import { openUtils } from "./input/utils.ts";
import { say } from "./output/say.ts";

/** Installs or upgrades Graphile Worker's schema and this package's. Safe while workers run, and to repeat. */
export const command = defineCommand({
  options: {
    adopt: {
      kind: "texts",
      meaning: "a task whose waiting jobs are adopted too; may be repeated",
      default: "none",
    },
    ...WHY,
  },
  examples: [
    ["", "set up, or upgrade"],
    ["--adopt fetch_endpoint", "and move the task's backlog under its policy"],
  ],
  about: "It is safe while workers run, and safe to repeat.",
  async run(values): Promise<Exit> {
    const place = await placeOf(values);
    await (await openUtils(place)).release();
    if (!values.json) say("Schemas are up to date.");
    const { adopt: tasks = [] } = values;
    if (tasks.length > 0)
      await inPlace(place, connected, async (context) => {
        for (const task of tasks) await adoptTask(context, values, { task, ...whyOf(values) });
      });
    return EXIT.done;
  },
});
