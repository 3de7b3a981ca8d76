import { rescheduleJobs } from "../operate/reschedule-jobs.ts";
import { checkVerb } from "../operate/verb.ts";
import { parameter } from "../operate/view-rows.ts";
import { defineCommand, UsageError } from "./command.ts";
import { DRY_RUN, JSON_OPTION } from "./input/options.ts";
import { changing, lookingAt } from "./input/place.ts";
import { answer } from "./output/say.ts";
import { grouped, some } from "./output/words.ts";

const IDS = parameter(1, "ids");

/** Changes when and how jobs run. */
export const command = defineCommand({
  argument: {
    name: "ids",
    kind: "texts",
    required: true,
    meaning: "ids of jobs, Graphile Worker's or staged ones",
  },
  options: {
    "run-at": {
      kind: "time",
      meaning: "when they are due: a time, or a duration from now",
      default: "as it is",
    },
    priority: { kind: "number", meaning: "lower goes first", default: "as it is" },
    attempts: {
      kind: "number",
      meaning: "how many times they were started; not of a staged job that never ran",
      default: "as it is",
    },
    "max-attempts": { kind: "number", meaning: "how many times they may be started", default: "as it is" },
    ...DRY_RUN,
    ...JSON_OPTION,
  },
  examples: [
    ['1000000000000042 --run-at "2 hours"', "not before two hours have gone by"],
    ["4711 4712 --priority -5", "before others of their partition"],
  ],
  about:
    "A staged job keeps waiting for its gates, and one that was admitted passes them again. Jobs that run stay as they are. " +
    "It is Graphile Worker's own verb: it takes no reason, and the audit gets no row.",
  async run(values) {
    const { rest: ids, priority, attempts, "run-at": runAt, "max-attempts": maxAttempts } = values;
    checkVerb("rescheduleJobs", { ids }, { needs: ["ids"] });
    const changes = { runAt, priority, attempts, maxAttempts };
    if (Object.values(changes).every((value) => value === undefined))
      throw new UsageError("nothing to change: give --run-at, --priority, --attempts or --max-attempts");
    if (values["dry-run"]) {
      const found = await lookingAt(values, ({ engine, withPgClient }) =>
        withPgClient((client) =>
          engine.view(
            client,
            "jobs",
            `where (id = any(${IDS}) or staged_id = any(${IDS})) and state <> 'running'`,
            [ids],
          ),
        ),
      );
      const counted = { matched: found.length, changed: 0 };
      return answer(values, counted, `${some(found.length, "job")} would be rescheduled.`);
    }
    const jobs = await changing(values, (context) => rescheduleJobs(context, ids, changes));
    const changed = { matched: jobs.length, changed: jobs.length };
    return answer(
      values,
      changed,
      `Rescheduled ${grouped(jobs.length)} of ${some(new Set(ids).size, "job")}.`,
    );
  },
});
