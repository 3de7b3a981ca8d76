// The forms of verbs: each derives from its row in the table (`operate/verbs.ts`). A form gives texts; here they become the
// verb's options, the flags of its command, and the arguments of its SQL function.
import { type Duration, durationMs, isDuration } from "../../duration.ts";
import { ArgumentError } from "../../errors.ts";
import { literal, pairsOf } from "../../operate/quoted.ts";
import type { AnyVerb, Form, FormField, Given, OptionName } from "../../operate/verb.ts";
import { checkCall, isMissed } from "../../operate/verb.ts";
import { columnsOf } from "../../operate/verbs/limits.ts";
import { kebabCase, ROWS, runVerb, snakeCase, type VerbName } from "../../operate/verbs.ts";
import { html, type Markup } from "../parts/markup.ts";
import { lasting, moment } from "../parts/words.ts";
import {
  type Action,
  type ActionName,
  type Choice,
  type Counted,
  durationIn,
  type Field,
  FLAG,
  type Flags,
  IF_EMPTY,
  need,
  numberIn,
  type Result,
  type Values,
} from "./form.ts";
import { gatesOf, LIMIT_FORMS, NUMBERS, numbersIn, whereIn } from "./limit-actions.ts";

/** What the form takes for a number. */
const ALL = "all";

/** What a form calls an option. */
function fieldName(option: OptionName): string {
  if (option === "until" || option === "forMs") return "for"; // a length of time from now on, or from `from` on
  return option === "jobId" ? "ids" : kebabCase(option);
}

/** For how long, as most want it. */
const LENGTHS: readonly Duration[] = ["30 minutes", "2 hours"];

function fieldsOf({ option, label, hint, open, isRequired, isFilter }: FormField): readonly Field[] {
  if (option === "set") return NUMBERS;
  const isKey = option === "key" || option === "toPartition";
  const says = [hint, isKey && IF_EMPTY].filter(Boolean).join("");
  return [
    {
      ...{ name: fieldName(option), label },
      ...(says && { hint: says }),
      ...(isRequired && { isRequired }),
      ...(isFilter && { isFilter }),
      ...(isKey && { isKey }),
      ...((option === "until" || option === "forMs") && { chips: chipsWith(open) }),
      ...(option === "gate" && { choices: gatesOf }),
      ...(option === "key" && { isFor: ({ scope }) => scope !== "policy" }),
      ...(option === "where" && { isFor: ({ scope }) => scope === "partition" }),
    } satisfies Field,
  ];
}

function chipsWith(open: string | undefined): readonly Choice[] {
  const chips = LENGTHS.map((value) => ({ value, says: lasting(durationMs(value) / 1000) }));
  return open === undefined ? chips : [...chips, { value: "", says: open }];
}

/** The option that a text of the form gives. */
function given(option: OptionName, values: Values): Given {
  const text = values[fieldName(option)];
  if (option === "set") return { set: numbersIn(values) };
  if (text === undefined) return {};
  switch (option) {
    case "until":
      return { until: atTime(endOf(values)) };
    case "from":
      return { from: atTime(whenIn("from", text)) };
    case "forMs":
      return { forMs: durationMs(durationIn("for", text)) };
    case "count":
      return text === ALL ? { drain: true } : { count: numberIn("count", text) };
    case "ids":
      return { ids: text.split(",") };
    case "where":
      return { where: whereIn(text) };
    default:
      return { [option]: text };
  }
}

/** Its argument in SQL. */
function inSql(option: OptionName, values: Values): Record<string, string | undefined> {
  const text = values[fieldName(option)];
  if (option === "set") return { set: literal(JSON.stringify(columnsOf("set-limit", numbersIn(values)))) };
  if (text === undefined) return {};
  switch (option) {
    case "until":
      return { until: timeInSql(endOf(values)) };
    case "from":
      return { from: timeInSql(whenIn("from", text)) };
    case "forMs":
      return { for: `interval ${literal(text)}` };
    case "count":
      return { count: text === ALL ? "10000" : text };
    case "ids":
      return { ids: `array[${text.split(",").map(idInSql).join(", ")}]` };
    case "jobId":
      return { job_id: idInSql(text) };
    default:
      return { [snakeCase(option)]: literal(text) };
  }
}

const timeInSql = (when: When | undefined) =>
  when instanceof Date ? literal(when.toISOString()) : `now() + interval ${literal(when ?? "")}`;

const idInSql = (id: string) => (/^\d{1,18}$/.test(id) ? id : literal(id));

/** Its flag of the command. */
function asFlags(option: OptionName, values: Values): Flags {
  const name = fieldName(option);
  const text = values[name];
  if (option === "set") return Object.fromEntries(NUMBERS.map((field) => [field.name, values[field.name]]));
  const end = option === "until" ? endOf(values) : undefined;
  if (end) return { until: end instanceof Date ? end.toISOString() : end };
  if (option === "where") return { where: pairsOf(whereIn(text)) };
  if (option === "count" && text === ALL) return { drain: FLAG };
  return { [name]: text };
}

/** A length of time from now on, or a time: to set again what was before, with its end. */
type When = Duration | Date;

/** A field's length of time or its end, for people. Undefined: it is neither. */
export function whenInWords(text: string): Markup | string | undefined {
  if (isTime(text)) return html`until ${moment(new Date(text))}`;
  return isDuration(text) ? lasting(durationMs(text) / 1000) : undefined;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?Z$/;

function whenIn(name: string, text: string): When {
  return isTime(text) ? new Date(text) : durationIn(name, text);
}

const isTime = (text: string) => TIME.test(text) && Number.isFinite(Date.parse(text));

const atTime = (when: When | undefined): Date | undefined =>
  when === undefined || when instanceof Date ? when : new Date(Date.now() + durationMs(when));

/** When it ends. */
function endOf({ from, for: length }: Values): When | undefined {
  if (length === undefined) return undefined;
  const lasts = whenIn("for", length);
  if (from === undefined || lasts instanceof Date) return lasts;
  const begins = whenIn("from", from);
  return begins instanceof Date ? new Date(begins.getTime() + durationMs(lasts)) : sumOf(begins, lasts);
}

const UNITS = [
  ["days", 86_400_000],
  ["hours", 3_600_000],
  ["minutes", 60_000],
  ["seconds", 1000],
] as const;

function sumOf(...durations: readonly Duration[]): Duration {
  return durationOf(durations.reduce((sum, one) => sum + durationMs(one), 0));
}

/** By the largest unit that needs no fraction. */
export function durationOf(ms: number): Duration {
  const [unit, size] = UNITS.find(([, one]) => ms % one === 0) ?? (["ms", 1] as const);
  return `${ms / size} ${unit}`;
}

/** What is counted does not depend on these. */
const NOT_COUNTED: ReadonlySet<OptionName> = new Set(["until", "from", "forMs", "count", "set"]);

function actionOf(name: VerbName, verb: AnyVerb, form: Form): Action {
  const { label, target, fields = [] } = form;
  const options = [...target, ...fields.map(({ option }) => option)];
  const filters = fields.filter(({ isFilter }) => isFilter).map(({ option }) => option);
  const needed = target.filter((option) => verb.options[option]?.required || option === form.needs);
  const read = <T extends object>(of: readonly OptionName[], by: (option: OptionName) => T): T =>
    Object.assign({}, ...of.map(by));
  /** @throws {ArgumentError} unless the link to the form named what it acts on */
  const givenIn = (of: readonly OptionName[], values: Values): Given => {
    for (const option of needed) need(fieldName(option), values[fieldName(option)]);
    if (target.includes("policy") && values.ids === undefined) need("policy", values.policy);
    const it = read(of, (option) => given(option, values));
    // jobs by their ids, from whatever page
    return it.ids === undefined ? it : { ...it, policy: undefined, partition: undefined };
  };
  return {
    label,
    about: form.about,
    target: target.map(fieldName),
    fields: fields.flatMap(fieldsOf),
    ...(verb.isFinal && { needsYes: true }),
    ...(verb.undo && { inverse: kebabCase(verb.undo) as ActionName }),
    count: async (context, values) => {
      const it = givenIn(
        options.filter((option) => !NOT_COUNTED.has(option)),
        values,
      );
      if (verb.count) {
        checkCall(name, verb, it);
        return (await verb.count(context, it)) as Counted;
      }
      const own = givenIn([...target, ...filters], values);
      const [counter, of] = form.count?.(it) ?? [name, own];
      return runVerb(context, counter as VerbName, { ...of, dryRun: true } as never) as Promise<Counted>;
    },
    run: async (context, { reason, by, ...values }) => {
      for (const { option, isRequired } of fields)
        if (isRequired) need(fieldName(option), values[fieldName(option)]);
      const it = givenIn(options, values);
      sayWhatIsMissed(verb, it);
      return runVerb(context, name, { ...it, reason, by } as never) as Promise<Result>;
    },
    did: (values, result) => {
      const it = givenIn(options, values);
      return [verb.did(it, result, inWords(values)), verb.note?.(it, result)].filter(Boolean).join(" ");
    },
    sql: (values) => read(options, (option) => inSql(option, values)),
    flags: (values) => read(options, (option) => asFlags(option, values)),
    ...LIMIT_FORMS[name],
  };
}

/** For how long, as people say it. */
function inWords({ from, for: length }: Values): string {
  const seconds = (text: string) => lasting(durationMs(text as Duration) / 1000);
  const begins = from === undefined ? "" : `beginning in ${seconds(from)}, `;
  return `${begins}${length === undefined ? "until somebody ends it" : `for ${seconds(length)}`}`;
}

/** @throws {ArgumentError} in the words of a form, if it lacks one of several options */
export function sayWhatIsMissed({ either = [] }: AnyVerb, it: Given): void {
  const missed = either.find((one) => one.form !== undefined && isMissed(one, it));
  if (missed) throw new ArgumentError(missed.form as string);
}

export const ACTIONS = Object.fromEntries(
  ROWS.flatMap(([name, verb]) => (verb.form ? [[kebabCase(name), actionOf(name, verb, verb.form)]] : [])),
) as Readonly<Record<ActionName, Action>>;

/** After these a job does not run. */
export const ENDS: ReadonlySet<string> = new Set(
  ROWS.filter(([, { form }]) => form?.ends).map(([name]) => kebabCase(name)),
);
