// What lets a job go that waits. SQL decides it (`_mend`), for commands, pages and programs alike.
import { some } from "../counted.ts";
import { DEFAULT_SCHEMA } from "../settings.ts";
import { commandLine, pairsOf } from "./quoted.ts";
import type { ContextValues, LimitTarget, PartitionTarget, PolicyTarget } from "./targets.ts";
import type { AnyVerb, Given, OptionName } from "./verb.ts";
import type { LimitValues } from "./verbs/limits.ts";
import { kebabCase, VERBS } from "./verbs.ts";

/** What lets something go that waits: a verb with its options, as its method takes them. */
export type Mend = {
  /** What to do. The verb completes it: "Nothing to do: it goes by itself in 3-6 min. To let it go sooner". */
  words: string;
} & (
  | { verb: "resume"; options: PolicyTarget }
  | { verb: "clearLimit"; options: LimitTarget }
  /** By as much as one job needs, and for an hour. */
  | { verb: "setLimit"; options: LimitTarget & { set: LimitValues; until: Date } }
  | { verb: "admit"; options: PartitionTarget & { count: number } }
  | { verb: "retry"; options: { ids: readonly string[] } | PartitionTarget }
  | { verb: "cancel"; options: { ids: readonly string[] } }
  | { verb: "rescheduleJobs"; options: { ids: readonly string[]; runAt: Date } }
  | { verb: "tick"; options: { policy: string } }
  /** There is nothing to do, or no verb does it. */
  | { verb: null; options: null }
);

/** The command that does it, in the schema of that name. Null: there is none. */
export function commandOfMend({ verb, options }: Mend, asOf: Date, schema: string): string | null {
  if (verb === null) return null;
  const given = options as Given;
  const its: AnyVerb | undefined = (VERBS as Readonly<Record<string, AnyVerb>>)[verb];
  // json has lost their order
  const flags = (Object.keys({ ...its?.options, ...given }) as OptionName[])
    .filter((option) => option !== "ids" && given[option] !== undefined)
    .flatMap((option) => flagsOf(option, given[option], asOf));
  return commandLine(kebabCase(verb), (given.ids ?? []) as readonly string[], {
    ...Object.fromEntries(flags),
    "policy-schema": schema === DEFAULT_SCHEMA ? undefined : schema,
    ...(its?.isFinal && { yes: true }),
  });
}

/** Times are durations from now on: whoever reads the command may call it later. */
function flagsOf(option: OptionName, value: unknown, asOf: Date): [string, string | readonly string[]][] {
  if (option === "set")
    return Object.entries(value as object).map(([number, one]) => [kebabCase(number), String(one)]);
  if (option === "where") return [["where", pairsOf(value as ContextValues) ?? []]];
  return [[kebabCase(option), value instanceof Date ? fromThen(value, asOf) : String(value)]];
}

function fromThen(time: Date, asOf: Date): string {
  const hours = (time.getTime() - asOf.getTime()) / 3_600_000;
  return hours >= 1 ? some(Math.round(hours), "hour") : `${Math.round(hours * 3600)} seconds`;
}
