import { parameter } from "../db/engine.ts";
import { releaseSlots } from "../operate/release-slots.ts";
import { checkVerb } from "../operate/targets.ts";
import { defineCommand } from "./command.ts";
import { WHY, whyOf, YES } from "./input/options.ts";
import { changing, lookingAt } from "./input/place.ts";
import { answer, answerCount, onlyCounts } from "./output/say.ts";
import { fromNow } from "./output/words.ts";

interface InFlight {
  readonly job_id: string;
  readonly policy: string;
  readonly partition: string;
  readonly admitted_at: Date;
  readonly worker_id: string | null;
}

const ID = parameter(1, "id");

/** Frees the slots of a job in flight that hangs, or is lost. */
export const command = defineCommand({
  argument: {
    name: "id",
    kind: "text",
    required: true,
    meaning: "the job's id, Graphile Worker's or the staged one",
  },
  options: { ...YES, ...WHY },
  examples: [
    ["4711", "show the job"],
    ['4711 --yes --reason "hangs since the deploy"', "free its slots"],
  ],
  about: "The job is not stopped. If it runs on, it does not count: a limit may be exceeded.",
  async run(values) {
    const [id = ""] = values.rest;
    checkVerb("releaseSlots", { jobId: id }, { needs: ["jobId"] });
    if (onlyCounts(values)) {
      const found = await lookingAt(values, ({ engine, withPgClient }) =>
        withPgClient((client) =>
          engine.view<InFlight>(client, "in_flight_jobs", `where job_id = ${ID} or staged_id = ${ID}`, [id]),
        ),
      );
      return answerCount(values, { matched: found.length, changed: 0 }, found.map(inWords)[0] ?? none(id));
    }
    const result = await changing(values, (context) =>
      releaseSlots(context, { jobId: id, ...whyOf(values) }),
    );
    const kept = `Job ${id} keeps its slots: another transaction has it, or a limit that it counts for, locked. Try again.`;
    const given = result.changed > 0 ? `Job ${id} has freed its slots.` : kept;
    return answer(values, result, result.matched > 0 ? given : none(id));
  },
});

function inWords({ job_id: id, policy, partition, admitted_at: at, worker_id: worker }: InFlight): string {
  const where = worker === null ? "no worker runs it" : `${worker} runs it`;
  return `Job ${id} of ${policy}/${partition} was admitted ${fromNow(at)}; ${where}.`;
}

function none(id: string): string {
  return `Job ${id} has no slots.`;
}
