import type { OperateContext } from "../operate/call.ts";
import { type AdoptOptions, POLICIES } from "../operate/verbs/policies.ts";
import { runVerb } from "../operate/verbs.ts";
import { parameter } from "../operate/view-rows.ts";
import { defineCommand, EXIT } from "./command.ts";
import { DRY_RUN, WHY, whyOf } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { answer } from "./output/say.ts";
import { some } from "./output/words.ts";

/** Moves the jobs of tasks with a policy that wait in Graphile Worker into staging. Safe while workers run, and to repeat. */
export const command = defineCommand({
  options: {
    task: { kind: "texts", required: true, meaning: "a task with a policy; may be repeated" },
    ...DRY_RUN,
    ...WHY,
  },
  examples: POLICIES.adopt.examples,
  about: POLICIES.adopt.about,
  async run(values) {
    return changing(values, async (context) => {
      for (const task of values.task)
        await adoptTask(context, values, { task, dryRun: values["dry-run"], ...whyOf(values) });
      return EXIT.done;
    });
  },
});

/** Adopts the waiting jobs of a task, and says how many. If none is left, workers may have been faster: it says that too. */
export async function adoptTask(
  context: OperateContext,
  values: { readonly json: boolean },
  options: AdoptOptions,
): Promise<void> {
  const { task, dryRun } = options;
  const result = await runVerb(context, "adopt", options);
  const { matched, changed } = result;
  if (matched === 0) {
    const byWorkers = await adoptedByWorkers(context, task);
    const already = byWorkers > 0 ? `; workers have adopted ${some(byWorkers, "job")} already` : "";
    answer(values, { task, matched, changed, byWorkers }, `${task}: no job is left to adopt${already}.`);
    return;
  }
  const { did, would } = POLICIES.adopt;
  answer(values, { task, matched, changed }, (dryRun ? would : did)(options, result));
}

/** As far back as the audit goes. */
async function adoptedByWorkers({ engine, withPgClient }: OperateContext, task: string): Promise<number> {
  const where = `where verb = 'adopt' and by = 'worker' and detail ->> 'task' = ${parameter(1, "text")}`;
  const steps = await withPgClient((client) =>
    engine.view<{ readonly changed: number }>(client, "audit", where, [task]),
  );
  return steps.reduce((sum, { changed: jobs }) => sum + jobs, 0);
}
