// What a verb is: one row of a table, from which its method, its command, its form and the calls to copy derive. The rows
// stand in `verbs/`, and `verbs.ts` lists them.
import {
  aBoolean,
  aDate,
  anyText,
  arrayOf,
  check,
  checkOptions,
  numberFromZero,
  oneOf,
  optional,
  type Rule,
  show,
  wholeNumber,
} from "../checks/options.ts";
import type { Arguments } from "../db/engine.ts";
import { ArgumentError } from "../errors.ts";
import type { PolicyEventMap } from "../events.ts";
import { isPolicy } from "../policy/policy.ts";
import type { OperateContext } from "./call.ts";
import { OUTCOMES } from "./outcomes.ts";

/** How a command line gives an option. `past`: a time, or a duration before now. */
export type Kind = "flag" | "text" | "texts" | "number" | "time" | "past" | "duration";

const anObject: Rule = {
  expects: "an object",
  accepts: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

const aPolicy: Rule = { expects: "a policy made by definePolicy", accepts: isPolicy };

/** Graphile Worker's, or a staged one. */
const jobId: Rule = {
  expects: 'a job id, such as "1000000000000001"',
  accepts: (value) => /^[1-9][0-9]{0,17}$/.test(String(value)) && typeof value !== "object",
};

/** Of a job group, or the last one of a page. */
export const anId: Rule = { expects: 'an id, such as "7"', accepts: jobId.accepts };

/** A partner's answer may say that there is none. */
const aDateOrNull: Rule = {
  expects: aDate.expects,
  accepts: (value) => value === null || aDate.accepts(value),
};

/** An option means the same in each verb: what it accepts, and how a command line gives it. */
const OPTIONS = {
  policy: { rule: anyText, kind: "text" },
  task: { rule: anyText, kind: "text" },
  partition: { rule: anyText, kind: "text" },
  all: { rule: aBoolean, kind: "flag" },
  gate: { rule: anyText, kind: "text" },
  key: { rule: anyText, kind: "text" },
  set: { rule: anObject, kind: "texts" },
  where: { rule: anObject, kind: "texts" },
  context: { rule: anObject, kind: "texts" },
  definition: { rule: aPolicy, kind: "text" },
  reason: { rule: anyText, kind: "text" },
  by: { rule: anyText, kind: "text" },
  from: { rule: aDate, kind: "time" },
  until: { rule: aDate, kind: "time" },
  since: { rule: aDate, kind: "past" },
  now: { rule: aDate, kind: "time" },
  resetAt: { rule: aDateOrNull, kind: "time" },
  forMs: { rule: numberFromZero, kind: "duration" },
  cost: { rule: numberFromZero, kind: "number" },
  remaining: { rule: numberFromZero, kind: "number" },
  count: { rule: wholeNumber(1), kind: "number" },
  limit: { rule: wholeNumber(1), kind: "number" },
  most: { rule: wholeNumber(1), kind: "number" },
  drain: { rule: aBoolean, kind: "flag" },
  dryRun: { rule: aBoolean, kind: "flag" },
  force: { rule: aBoolean, kind: "flag" },
  into: { rule: anyText, kind: "text" },
  toPartition: { rule: anyText, kind: "text" },
  toPolicy: { rule: anyText, kind: "text" },
  shard: { rule: anyText, kind: "text" },
  search: { rule: anyText, kind: "text" },
  query: { rule: anyText, kind: "text" },
  max: { rule: wholeNumber(1, 100), kind: "number" },
  after: { rule: anyText, kind: "text" },
  error: { rule: anyText, kind: "text" },
  outcome: { rule: oneOf(...OUTCOMES), kind: "text" },
  jobKey: { rule: anyText, kind: "text" },
  jobId: { rule: jobId, kind: "text" },
  id: { rule: jobId, kind: "text" },
  ids: { rule: arrayOf(jobId, "job ids"), kind: "texts" },
  group: { rule: anId, kind: "text" },
} satisfies Record<string, { readonly rule: Rule; readonly kind: Kind }>;

export type OptionName = keyof typeof OPTIONS;

/** How a command line gives an option, unless a verb says otherwise. */
export const kindOf = (option: OptionName): Kind => OPTIONS[option].kind;

/** What the help of a command says of an option. */
export interface Help {
  readonly meaning: string;
  /** In words. Neither this nor `required`: nothing is said of it. */
  readonly default?: string;
  readonly required?: true;
  readonly kind?: Kind;
}

/** Options of which one must be given. */
export interface Either {
  readonly of: readonly OptionName[];
  /** How many of them may be given. Default: any number. */
  readonly most?: 1;
  /** Completes "expected". */
  readonly expected: string;
  /** Completes "got". Default: the values. */
  readonly got?: string;
  /** The same for a command line, and for a form if it may ask for it. */
  readonly flags: string;
  readonly form?: string;
}

/** A field of a verb's form. It gives an option; a field for a time takes a length of time from now. */
export interface FormField {
  readonly option: OptionName;
  readonly label: string;
  readonly hint?: string;
  /** What it means to leave a length of time empty. */
  readonly open?: string;
  readonly isRequired?: true;
  /** It narrows what the page has counted. */
  readonly isFilter?: true;
}

/** A verb on the pages. */
export interface Form {
  /** Its name for people. With "…" its page asks for more than a reason. */
  readonly label: string;
  /** Says what it does. */
  readonly about: string;
  /** What it acts on, of which the page knows the values. */
  readonly target: readonly OptionName[];
  readonly fields?: readonly FormField[];
  /** What else the page must know of it. */
  readonly needs?: OptionName;
  /** What the page counts before it asks, and with which options. Default: the verb's own dry run of the target. */
  readonly count?: (given: Given) => readonly [verb: string, options: Given];
  /** After it the jobs do not run. */
  readonly ends?: true;
  /** The list of partitions offers it for those that are ticked. */
  readonly isForMany?: true;
}

/** A verb that takes all jobs that a filter of the page of jobs matches. */
export interface Bulk {
  /** The states in which it takes jobs. */
  readonly states: readonly string[];
  readonly place: "id" | "staged_id";
  /** What the filter must name, so that nobody takes more than they meant. Empty: anything. */
  readonly needs: readonly ("policy" | "partition")[];
  /** It takes jobs as they were when they were counted: with a later end, one that fails again would have no end. */
  readonly until?: true;
}

export type Given = Partial<Record<OptionName, unknown>>;

type Event = { [K in keyof PolicyEventMap]: readonly [K, PolicyEventMap[K]] }[keyof PolicyEventMap];

/** A verb with its options `O` and its result `R`. Its name is its key in the table. */
export interface Verb<O extends object, R extends object> {
  /** One line of the list of commands. */
  readonly summary: string;
  /** What else to know, behind the summary in the help. */
  readonly about?: string;
  /** What follows the command's name, and what that does. */
  readonly examples: readonly (readonly [line: string, meaning: string])[];
  /** What it takes beside `reason`, `by` and `dryRun`, in the order of the help. */
  readonly options: Readonly<Partial<Record<OptionName, Help>>>;
  /** Options that go with others only: those that it needs then, and those that it does not take. */
  with?(given: Given): { readonly needs?: OptionName; readonly not: readonly OptionName[] };
  readonly either?: readonly Either[];
  /** What else is wrong with a command line, in its words. */
  wrong?(given: Given): string | false;
  /** False: it takes no `reason` and `by`, and leaves no row in the audit. */
  readonly isAudited?: false;
  /** What its dry run says: what it concerns, or how many jobs. Without it, it has none. */
  readonly dryRun?: "reach" | "jobs";
  /** Its command only counts without `--yes`, because nothing takes it back. */
  readonly isFinal?: true;
  /** Its SQL function and the arguments. Default: its name and its options, in snake case. */
  readonly sql?: string;
  args?(options: O): Arguments;
  /** Several calls in place of one. */
  run?(context: OperateContext, options: O): Promise<R>;
  event?(options: O, result: R): Event;
  /** Where it has no dry run: what it would act on. */
  count?(context: OperateContext, options: O): Promise<R>;
  /** The words of its command: what was done, and what would be. `when`: the words for how long, in place of times. */
  did(options: O, result: R, when?: string): string;
  would(options: O, result: R): string;
  /** What the command says beside it. */
  note?(options: O, result: R): string | false;
  /** How its command ends. Default: `nothing` if nothing matches. */
  exit?(result: R): "done" | "failed";
  /** The verb that undoes it, on the same target. */
  readonly undo?: string;
  readonly form?: Form;
  readonly bulk?: Bulk;
}

/** A verb of whatever options. */
export type AnyVerb = Verb<object, object>;

/** Which options a verb needs and takes. */
export function optionsOf({ options, isAudited, dryRun }: AnyVerb) {
  const own = Object.entries(options) as [OptionName, Help][];
  const more: readonly OptionName[] = [
    ...(isAudited === false ? [] : (["reason", "by"] as const)),
    ...(dryRun ? (["dryRun"] as const) : []),
  ];
  return {
    needs: own.filter(([, { required }]) => required).map(([name]) => name),
    takes: [...own.filter(([, { required }]) => !required).map(([name]) => name), ...more],
  };
}

/** @throws {ArgumentError} naming verb, option, value and expectation */
export function checkCall(name: string, verb: AnyVerb, options: object): void {
  const { needs, takes } = optionsOf(verb);
  const { needs: also, not = [] } = verb.with?.(options) ?? {};
  checkVerb(name, options, {
    needs: also ? [...needs, also] : needs,
    takes: takes.filter((option) => option !== also && !not.includes(option)),
  });
  for (const either of verb.either ?? []) {
    if (!isMissed(either, options)) continue;
    const { of, expected, got } = either;
    const values = of.map((option) => `${option} ${show((options as Given)[option])}`).join(", ");
    throw new ArgumentError(`${name}: expected ${expected}, got ${got ?? values}`);
  }
}

/** Whether none of the options is given, or too many are. */
export function isMissed({ of, most }: Either, given: Given): boolean {
  const count = of.filter((option) => given[option] !== undefined && given[option] !== false).length;
  return count === 0 || count > (most ?? of.length);
}

/**
 * Checks the options of a method: `needs` are required, `takes` may be left out.
 *
 * @throws {ArgumentError} naming verb, option, value and expectation
 */
export function checkVerb(
  verb: string,
  options: object,
  { needs = [], takes = [] }: { needs?: readonly OptionName[]; takes?: readonly OptionName[] },
): void {
  checkOptions(verb, options, [...needs, ...takes]);
  const given: Given = options;
  for (const key of needs) check(`${verb}: ${key}`, given[key], OPTIONS[key].rule);
  for (const key of takes) optional(`${verb}: ${key}`, given[key], OPTIONS[key].rule);
}
