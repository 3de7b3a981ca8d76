import { parameter } from "../../db/engine.ts";
import { durationMs } from "../../duration.ts";
import { ArgumentError } from "../../errors.ts";
import { admit } from "../../operate/admit.ts";
import type { OperateContext } from "../../operate/call.ts";
import { cancel } from "../../operate/cancel.ts";
import { hold } from "../../operate/hold.ts";
import { move } from "../../operate/move.ts";
import { pause } from "../../operate/pause.ts";
import { literal } from "../../operate/quoted.ts";
import { releaseSlots } from "../../operate/release-slots.ts";
import { remove } from "../../operate/remove.ts";
import { resume } from "../../operate/resume.ts";
import { retry } from "../../operate/retry.ts";
import { checkVerb } from "../../operate/targets.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import {
  type Action,
  type ActionName,
  after,
  durationIn,
  FLAG,
  fromNow,
  HOW_LONG,
  IF_EMPTY,
  need,
  numberIn,
  texts,
  type Values,
  whyOf,
} from "./form.ts";
import { CLEAR_LIMIT, SET_LIMIT } from "./limit-actions.ts";

/** What the form takes for a number. */
const ALL = "all";

export const ACTIONS: Readonly<Record<ActionName, Action>> = {
  pause: {
    about: "Stops admission. Jobs in flight go on, and jobs can still be added; they wait.",
    target: ["policy", "partition"],
    fields: [{ name: "for", label: "For how long", hint: `${HOW_LONG}; empty: until it is resumed` }],
    count: (context, { policy, partition }) =>
      pause(context, { policy: need("policy", policy), partition, dryRun: true }),
    run: (context, { policy, partition, for: length, ...why }) =>
      pause(context, {
        policy: need("policy", policy),
        partition,
        until: after("for", length),
        ...whyOf(why),
      }),
    sql: ({ policy, partition, for: length }) => ({
      ...texts({ policy, partition }),
      until: fromNow(length),
    }),
    flags: ({ policy, partition, for: length }) => ({ policy, partition, until: length }),
    inverse: "resume",
  },
  resume: {
    about: "Ends a pause, and a hold of a partition.",
    target: ["policy", "partition"],
    fields: [],
    count: (context, { policy, partition }) =>
      resume(context, { policy: need("policy", policy), partition, dryRun: true }),
    run: (context, { policy, partition, ...why }) =>
      resume(context, { policy: need("policy", policy), partition, ...whyOf(why) }),
    sql: texts,
    inverse: "pause",
  },
  hold: {
    about: "Stops the partition for a while. Then one job goes first, and the others once it has succeeded.",
    target: ["policy", "partition"],
    fields: [{ name: "for", label: "For how long", isRequired: true, hint: HOW_LONG }],
    count: (context, { policy, partition }) =>
      hold(context, {
        policy: need("policy", policy),
        partition: need("partition", partition),
        forMs: 1000,
        dryRun: true,
      }),
    run: (context, { policy, partition, for: length, ...why }) =>
      hold(context, {
        policy: need("policy", policy),
        partition: need("partition", partition),
        forMs: durationMs(durationIn("for", need("for", length))),
        ...whyOf(why),
      }),
    sql: ({ policy, partition, for: length }) => ({
      ...texts({ policy, partition }),
      for: length && `interval ${literal(length)}`,
    }),
    inverse: "resume",
  },
  admit: {
    about: "Admits due jobs past the gates. Their slots and tokens count all the same.",
    target: ["policy", "partition"],
    fields: [
      {
        name: "count",
        label: "How many at most",
        isRequired: true,
        hint: 'a number, or "all": those that are due, at most 10,000',
      },
    ],
    count: (context, { policy, partition }) =>
      admit(context, { policy: need("policy", policy), partition, drain: true, dryRun: true }),
    run: (context, { policy, partition, count, ...why }) => {
      const target = { policy: need("policy", policy), partition, ...whyOf(why) };
      if (count === ALL) return admit(context, { ...target, drain: true });
      return admit(context, { ...target, count: numberIn("count", count) ?? 0 });
    },
    sql: ({ policy, partition, count }) => ({
      ...texts({ policy, partition }),
      count: count === ALL ? "10000" : count,
    }),
    flags: ({ count, ...target }) => (count === ALL ? { ...target, drain: FLAG } : { ...target, count }),
    needsYes: true,
  },
  move: {
    about:
      "Moves staged jobs to another partition, under its limits. Jobs in flight stay. To take it back, move them again.",
    target: ["policy", "partition"],
    fields: [
      {
        ...{ name: "to-partition", label: "To the partition", isKey: true },
        hint: `empty: the other policy works it out; ${IF_EMPTY}`,
      },
      { name: "to-policy", label: "Of the policy", hint: "empty: the same" },
    ],
    count: (context, { policy, partition, "to-partition": toPartition, "to-policy": toPolicy }) => {
      const from = { policy: need("policy", policy), partition: need("partition", partition), dryRun: true };
      // until the form says where they go: both verbs take the staged jobs of the partition
      if (toPartition === undefined && toPolicy === undefined) return remove(context, from);
      return move(context, { ...from, toPartition, toPolicy });
    },
    run: (context, { policy, partition, "to-partition": toPartition, "to-policy": toPolicy, ...why }) =>
      move(context, {
        ...{ policy: need("policy", policy), partition: need("partition", partition) },
        ...{ ...whitherOf({ toPartition, toPolicy }), ...whyOf(why) },
      }),
    sql: ({ policy, partition, "to-partition": to, "to-policy": into }) =>
      texts({ policy, partition, to_partition: to, to_policy: into }),
    needsYes: true,
  },
  retry: {
    about: "Brings back jobs that have failed for good. They go through the gates again.",
    target: ["policy", "partition", "ids"],
    fields: [{ name: "error", label: "Only those whose error contains", isFilter: true }],
    count: (context, { policy, partition, ids, error }) =>
      retry(context, { ...jobsOf({ policy, partition, ids }), error, dryRun: true } as never),
    run: (context, { policy, partition, ids, error, ...why }) =>
      retry(context, { ...jobsOf({ policy, partition, ids }), error, ...whyOf(why) } as never),
    sql: ({ ids, ...rest }) => ({ ids: idList(ids), ...texts(rest) }),
  },
  remove: {
    about: "Removes jobs that wait in staging. Jobs in flight stay. There is no way back.",
    target: ["policy", "partition", "ids"],
    fields: [],
    count: (context, { policy, partition, ids }) =>
      remove(context, { ...jobsOf({ policy, partition, ids }), dryRun: true } as never),
    run: (context, { policy, partition, ids, ...why }) =>
      remove(context, { ...jobsOf({ policy, partition, ids }), ...whyOf(why) } as never),
    sql: ({ ids, ...rest }) => ({ ids: idList(ids), ...texts(rest) }),
    needsYes: true,
  },
  "release-slots": {
    about:
      "Frees the slots of a job in flight that hangs, or is lost. The job is not stopped: if it runs on, it no longer counts, and a limit may be exceeded. One that has not started waits in staging again.",
    target: ["ids"],
    fields: [],
    count: async (context, { ids }) => ({ matched: await slotsOf(context, need("ids", ids)), changed: 0 }),
    run: (context, { ids, ...why }) => releaseSlots(context, { jobId: need("ids", ids), ...whyOf(why) }),
    sql: ({ ids }) => ({ job_id: ids }),
    needsYes: true,
  },
  cancel: {
    about:
      "Ends jobs wherever they are. Those that run are told to end, and keep their slots until they do. " +
      "Staged jobs do not come back; retry brings back the others.",
    target: ["policy", "partition", "ids"],
    fields: [],
    count: (context, { policy, partition, ids }) =>
      cancel(context, { ...jobsOf({ policy, partition, ids }), dryRun: true } as never),
    run: (context, { policy, partition, ids, ...why }) =>
      cancel(context, { ...jobsOf({ policy, partition, ids }), ...whyOf(why) } as never),
    sql: ({ ids, ...rest }) => ({ ids: idList(ids), ...texts(rest) }),
    needsYes: true,
  },
  "set-limit": SET_LIMIT,
  "clear-limit": CLEAR_LIMIT,
};

/** @throws {ArgumentError} unless it says where jobs go */
export function whitherOf<Whither extends Values>({ toPartition, toPolicy }: Whither) {
  if (toPartition === undefined && toPolicy === undefined)
    throw new ArgumentError("Say where the jobs go: fill in a partition, a policy, or both");
  return { toPartition, toPolicy };
}

const ID = parameter(1, "id");

/** How many jobs of the id are in flight: 1, or none. */
async function slotsOf(context: OperateContext, jobId: string): Promise<number> {
  checkVerb("releaseSlots", { jobId }, { needs: ["jobId"] });
  return (await rowsOf(context, "in_flight_jobs", `where job_id = ${ID} or staged_id = ${ID}`, [jobId]))
    .length;
}

function jobsOf({ policy, partition, ids }: Values): object {
  return ids === undefined ? { policy: need("policy", policy), partition } : { ids: ids.split(",") };
}

function idList(ids: string | undefined): string | undefined {
  return (
    ids &&
    `array[${ids
      .split(",")
      .map((id) => (/^\d{1,18}$/.test(id) ? id : literal(id)))
      .join(", ")}]`
  );
}
