// Commands of verbs: each derives from its row in the table (`operate/verbs.ts`).
import type { OperateContext } from "../operate/call.ts";
import type { Changed } from "../operate/targets.ts";
import {
  type AnyVerb,
  checkCall,
  type Given,
  type Help,
  isMissed,
  kindOf,
  type OptionName,
} from "../operate/verb.ts";
import { kebabCase, runVerb, VERBS, type VerbName } from "../operate/verbs.ts";
import {
  type Argument,
  type Command,
  EXIT,
  type Exit,
  type Option,
  type Options,
  UsageError,
} from "./command.ts";
import { NUMBERS, numbersOf } from "./input/numbers.ts";
import { contextOf, DRY_RUN, JSON_OPTION, WHY, whereOf, whyOf, YES } from "./input/options.ts";
import { changing } from "./input/place.ts";
import { onlyCounts, sayJson, saySentence, tell, unlessYes } from "./output/say.ts";

type Values = Readonly<Record<string, unknown>> & { readonly rest: readonly string[] };

/** Options that stand on the command line without a name. */
const UNNAMED: ReadonlySet<OptionName> = new Set(["ids", "jobId"]);

/** `for` in place of `forMs`: a command line gives a duration. */
const flagOf = (name: OptionName): string => (name === "forMs" ? "for" : kebabCase(name));

function argumentOf(verb: AnyVerb): Argument | undefined {
  const { ids, jobId } = verb.options;
  if (ids) return { name: "ids", kind: "texts", meaning: ids.meaning };
  return jobId && { name: "id", kind: "text", required: true, meaning: jobId.meaning };
}

function flagsOf(verb: AnyVerb): Options {
  const named = (Object.entries(verb.options) as [OptionName, Help][]).filter(([name]) => !UNNAMED.has(name));
  return {
    ...Object.fromEntries(
      named.flatMap(([name, help]): [string, Option][] =>
        name === "set" ? Object.entries(NUMBERS) : [[flagOf(name), { kind: kindOf(name), ...help }]],
      ),
    ),
    ...(verb.isFinal ? YES : verb.dryRun ? DRY_RUN : {}),
    ...(verb.isAudited === false ? JSON_OPTION : WHY),
  };
}

/** What a command line gives, as the verb's options. */
function givenIn(verb: AnyVerb, values: Values): Given {
  const given = (Object.keys(verb.options) as OptionName[]).map((name) => [name, valueIn(name, values)]);
  return Object.fromEntries(given.filter(([, value]) => value !== undefined && value !== false));
}

function valueIn(name: OptionName, values: Values): unknown {
  const value = values[flagOf(name)];
  switch (name) {
    case "ids":
      return values.rest.length > 0 ? values.rest : undefined;
    case "jobId":
      return values.rest[0];
    case "set":
      return numbersOf(values as never);
    case "where":
      return whereOf(value as readonly string[] | undefined);
    case "context":
      return contextOf(value as readonly string[]);
    default:
      return value;
  }
}

/** The command of a verb. */
export function commandOf(name: VerbName): Command {
  const verb = VERBS[name] as AnyVerb;
  const argument = argumentOf(verb);
  return {
    ...(argument && { argument }),
    options: flagsOf(verb),
    examples: verb.examples,
    ...(verb.about && { about: verb.about }),
    async run(values: Values): Promise<Exit> {
      const given = givenIn(verb, values);
      const missed = verb.either?.find((either) => isMissed(either, given));
      const wrong = missed?.flags ?? verb.wrong?.(given);
      if (wrong) throw new UsageError(wrong);
      checkCall(name, verb, given);
      return changing(values as never, (context) => callVerb(context, name, given, values));
    },
  };
}

/** Calls a verb as its command does, and says what it has done, or would do. */
export async function callVerb(
  context: OperateContext,
  name: VerbName,
  given: Given,
  values: Values,
): Promise<Exit> {
  const verb = VERBS[name] as AnyVerb;
  const { json, "dry-run": dryRun } = values;
  const onlyAsks = verb.isFinal ? onlyCounts(values as never) : dryRun === true;
  const why = verb.isAudited === false ? {} : whyOf(values as never);
  const result: object =
    onlyAsks && verb.count
      ? await verb.count(context, given)
      : await runVerb(context, name, { ...given, ...why, ...(verb.dryRun && { dryRun: onlyAsks }) } as never);
  if (json) sayJson(result);
  else for (const line of (onlyAsks ? verb.would : verb.did)(given, result).split("\n")) saySentence(line);
  const note = (!onlyAsks || verb.dryRun === "jobs") && verb.note?.(given, result);
  if (note) tell(note);
  const { matched, stored } = result as Changed & { readonly stored?: boolean };
  const exit = EXIT[verb.exit?.(result) ?? (matched === 0 && !stored ? "nothing" : "done")];
  return exit === EXIT.done && onlyAsks && verb.isFinal ? unlessYes(values as never) : exit;
}
