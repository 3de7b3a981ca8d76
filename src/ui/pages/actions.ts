import { parameter } from "../../db/engine.ts";
import { type Duration, durationMs, isDuration } from "../../duration.ts";
import { ArgumentError } from "../../errors.ts";
import { admit } from "../../operate/admit.ts";
import type { OperateContext } from "../../operate/call.ts";
import { cancel } from "../../operate/cancel.ts";
import { type Diff, diff } from "../../operate/diff.ts";
import { hold } from "../../operate/hold.ts";
import { clearLimit, type LimitValues, setLimit } from "../../operate/limits.ts";
import { move } from "../../operate/move.ts";
import { pause } from "../../operate/pause.ts";
import { literal } from "../../operate/quoted.ts";
import { releaseSlots } from "../../operate/release-slots.ts";
import { remove } from "../../operate/remove.ts";
import { resume } from "../../operate/resume.ts";
import { retry } from "../../operate/retry.ts";
import type { Changed, Reach, Stored } from "../../operate/targets.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/policy.ts";
import { type Change, changesOf, type Limit } from "./limit-changes.ts";

/** What a form gives, by its fields: texts, and none is empty. */
export type Values = Readonly<Record<string, string | undefined>>;

export interface Field {
  readonly name: string;
  readonly label: string;
  readonly isRequired?: true;
  /** It narrows what the page has counted. */
  readonly isFilter?: true;
  readonly hint?: string;
  /** What there is to choose from. Without it the field takes any text. */
  readonly choices?: (context: OperateContext, values: Values) => Promise<readonly Choice[]>;
}

export interface Choice {
  readonly value: string;
  readonly says: string;
}

/** A verb on a page. The page counts first, if it can, and asks for a reason. */
export interface Action {
  /** Says what it does. */
  readonly about: string;
  /** What it acts on, of which the page knows the values. */
  readonly target: readonly string[];
  readonly fields: readonly Field[];
  /** Undefined: the values do not say yet what it acts on. */
  readonly count?: (context: OperateContext, values: Values) => Promise<Counted | undefined>;
  /** What the numbers are, and what they would be. Undefined: as for `count`. */
  readonly changes?: (context: OperateContext, values: Values) => Promise<readonly Change[] | undefined>;
  /** Whether the load is recorded, so that the page can replay it first. */
  readonly isRecorded?: (context: OperateContext, values: Values) => Promise<boolean>;
  /** Replays the recorded load as if it had been done. */
  readonly replay?: (context: OperateContext, values: Values) => Promise<Diff>;
  readonly run: (context: OperateContext, values: Values & Why) => Promise<Changed>;
  /** The arguments of the SQL function, beside reason and author. A value is an expression. */
  readonly sql: (values: Values) => Readonly<Record<string, string | undefined>>;
  /** The command's flags, where they differ from target and fields. */
  readonly flags?: (values: Values) => Readonly<Record<string, string | undefined>>;
  /** Without `--yes` the command only counts. */
  readonly needsYes?: true;
  /** The verb that undoes it, on the same target. */
  readonly inverse?: ActionName;
}

/** What a page says before it asks. */
export type Counted = Changed & Partial<Stored> & Reach;

interface Why {
  readonly reason: string;
  readonly by: string;
}

export type ActionName =
  | ("pause" | "resume" | "hold" | "admit" | "move")
  | ("retry" | "remove" | "cancel" | "release-slots" | "set-limit" | "clear-limit");

/** A thousand jobs take 7 to 14 s of a processor, and somebody waits for the page. */
const MOST_REPLAYED = 500;

/** What the form takes for a number, and what a flag without a value has in place of one. */
const ALL = "all";
export const FLAG = "";

const HOW_LONG = 'a duration, such as "30 minutes"';

export const ACTIONS: Readonly<Record<ActionName, Action>> = {
  pause: {
    about: "Stops admission. Jobs in flight go on, and jobs can still be added; they wait.",
    target: ["policy", "partition"],
    fields: [{ name: "for", label: "For how long", hint: `${HOW_LONG}; empty: until it is resumed` }],
    count: (context, { policy, partition }) =>
      pause(context, { policy: need("policy", policy), partition, dryRun: true }),
    run: (context, { policy, partition, for: length, ...why }) =>
      pause(context, { policy: need("policy", policy), partition, until: after(length), ...whyOf(why) }),
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
        forMs: milliseconds(need("for", length)),
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
      { name: "to-partition", label: "To the partition", hint: "empty: the other policy works it out" },
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
        ...{ toPartition, toPolicy, ...whyOf(why) },
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
      "Gives back the slots of a job in flight that hangs, or is lost. The job is not stopped: if it runs on, it no longer counts, and a limit may be exceeded. One that has not started waits in staging again.",
    target: ["ids"],
    fields: [],
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
  "set-limit": {
    about: "Gives a gate other numbers, for one key or for all. Those that are left out do not change.",
    target: ["policy"],
    fields: [
      { name: "gate", label: "Gate", isRequired: true, choices: gatesOf },
      { name: "key", label: "Key", hint: "empty: every key of the gate" },
      { name: "max", label: "Jobs at once", hint: "of a concurrency gate" },
      { name: "rate", label: "Tokens in each period", hint: "of a throttle" },
      { name: "per", label: "Period", hint: `of a throttle: ${HOW_LONG}` },
      { name: "for", label: "For how long", hint: `${HOW_LONG}; empty: until it is cleared` },
    ],
    // both verbs reach the same partitions, and this one needs no numbers
    count: async (context, values) => (await limitOf(context, values)) && reachOf(context, values),
    changes: async (context, { max, rate, per, ...values }) => {
      const limit = await limitOf(context, values);
      const set = {
        max: numberIn("max", max),
        rate: numberIn("rate", rate),
        per: per === undefined ? undefined : milliseconds(per) / 1000,
      };
      return limit && changesOf(context, limit, set);
    },
    isRecorded: async (context, values) => Boolean((await definitionOf(context, values))?.load),
    replay: (context, { policy, gate, key, max, rate, per }) =>
      diff(context, {
        policy: need("policy", policy),
        gate: need("gate", gate),
        key,
        set: numbersOf({ max, rate, per }),
        most: MOST_REPLAYED,
      }),
    run: (context, { policy, gate, key, for: length, max, rate, per, ...why }) =>
      setLimit(context, {
        policy: need("policy", policy),
        gate: need("gate", gate),
        key,
        set: numbersOf({ max, rate, per }),
        until: after(length),
        ...whyOf(why),
      }),
    sql: ({ policy, gate, key, max, rate, per, for: length }) => ({
      ...texts({ policy, gate }),
      set: literal(
        JSON.stringify({
          ...(max && { max: Number(max) }),
          ...(rate && { rate: Number(rate) }),
          ...(per && { per: milliseconds(per) / 1000 }),
        }),
      ),
      ...texts({ key }),
      until: fromNow(length),
    }),
    flags: ({ for: length, ...rest }) => ({ ...rest, until: length }),
    inverse: "clear-limit",
  },
  "clear-limit": {
    about: "Ends what was set: the policy's own numbers apply again.",
    target: ["policy", "gate", "key"],
    fields: [],
    count: reachOf,
    changes: async (context, values) => {
      const limit = await limitOf(context, values);
      return limit && changesOf(context, limit, null);
    },
    run: (context, { policy, gate, key, ...why }) =>
      clearLimit(context, { policy: need("policy", policy), gate: need("gate", gate), key, ...whyOf(why) }),
    sql: texts,
  },
};

const SCOPES = { partition: "of each partition", key: "of each key", policy: "of the policy" } as const;

/** The definition in force. */
async function definitionOf(
  context: OperateContext,
  { policy }: Values,
): Promise<PolicyDefinition | undefined> {
  const name = need("policy", policy);
  const where = `where policy = ${parameter(1, "text")}`;
  type Row = { readonly definition: PolicyDefinition };
  const [row] = await rowsOf<Row>(context, "policies", where, [name], name);
  return row?.definition;
}

/** The limit that the values name. Undefined: they name no gate, or none of the policy. */
async function limitOf(context: OperateContext, values: Values): Promise<Limit | undefined> {
  const { gate: name, key } = values;
  if (name === undefined) return undefined;
  const gate = (await definitionOf(context, values))?.gates.find((one) => one.name === name);
  return gate && { policy: need("policy", values.policy), gate, key };
}

/** What a limit concerns. */
function reachOf(context: OperateContext, { policy, gate, key }: Values): Promise<Counted> {
  return clearLimit(context, { policy: need("policy", policy), gate: need("gate", gate), key, dryRun: true });
}

/** The gates of the policy. */
async function gatesOf(context: OperateContext, values: Values): Promise<readonly Choice[]> {
  const definition = await definitionOf(context, values);
  return (definition?.gates ?? []).map((gate) => ({
    value: gate.name,
    says: `${gate.name} (${gate.kind.replace("_", " ")} ${SCOPES[gate.scope]})`,
  }));
}

function whyOf({ reason, by }: Values): { reason: string | undefined; by: string | undefined } {
  return { reason, by };
}

function jobsOf({ policy, partition, ids }: Values): object {
  return ids === undefined ? { policy: need("policy", policy), partition } : { ids: ids.split(",") };
}

function need(name: string, value: string | undefined): string {
  if (value === undefined) throw new ArgumentError(`${name} is missing`);
  return value;
}

function milliseconds(length: string): number {
  if (!isDuration(length)) throw new ArgumentError(`expected ${HOW_LONG}, got ${JSON.stringify(length)}`);
  return durationMs(length);
}

function after(length: string | undefined): Date | undefined {
  return length === undefined ? undefined : new Date(Date.now() + milliseconds(length));
}

function numberIn(name: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!Number.isFinite(number))
    throw new ArgumentError(`${name} must be a number, got ${JSON.stringify(value)}`);
  return number;
}

function numbersOf({ max, rate, per }: Values): LimitValues {
  return { max: numberIn("max", max), rate: numberIn("rate", rate), per: per as Duration | undefined };
}

function texts(values: Values): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value && literal(value)]));
}

function fromNow(length: string | undefined): string | undefined {
  return length && `now() + interval ${literal(length)}`;
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
