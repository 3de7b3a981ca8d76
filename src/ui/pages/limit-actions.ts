import { ArgumentError } from "../../errors.ts";
import { overridableFields } from "../../gates/index.ts";
import type { OperateContext } from "../../operate/call.ts";
import { diff } from "../../operate/diff.ts";
import type { ContextValues } from "../../operate/targets.ts";
import { HOW_LONG } from "../../operate/verbs/help.ts";
import { columnsOf, type LimitValues } from "../../operate/verbs/limits.ts";
import { runVerb, type VerbName } from "../../operate/verbs.ts";
import { parameter, rowsOf } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import {
  type Action,
  type Choice,
  type Counted,
  durationIn,
  type Field,
  type Gate,
  type Known,
  need,
  numberIn,
  type Values,
} from "./form.ts";
import { changesOf, type Limit, numbersNow } from "./limit-changes.ts";

/** A thousand jobs take 7 to 14 s of a processor, and somebody waits for the page. */
const MOST_REPLAYED = 500;

type NumberOption = keyof LimitValues;

/** A gate's numbers as the form asks for them. Each is named as the flag of the command, and its hint as the table of changes. */
export const NUMBERS: readonly (Field & { readonly option: NumberOption })[] = [
  number("max", "Jobs at once", "max of a concurrency or an adaptive gate"),
  number("rate", "Tokens in each period", "rate of a throttle"),
  number("per", "Period", `per of a throttle: ${HOW_LONG}`),
  number("burst", "Tokens of a full bucket", "burst of a throttle"),
  number("min", "Least limit", "min of an adaptive gate, which never shrinks below"),
  number("initialMax", "First limit", "initial max of an adaptive gate, from which it starts"),
  number("targetLagMs", "Lag to aim at", "target lag of an adaptive gate, in ms"),
];

function number(option: NumberOption, label: string, hint: string): Field & { option: NumberOption } {
  const { column = option } = overridableFields[option] ?? {};
  return {
    ...{ option, name: column.replaceAll("_", "-"), label, hint },
    isFor: ({ overrides }) => column in overrides,
  };
}

type LimitForm = Pick<Action, "know" | "count" | "changes"> & Partial<Action>;

/** What the forms of limits say of the gate before they ask. */
export const LIMIT_FORMS: Readonly<Partial<Record<VerbName, LimitForm>>> = {
  setLimit: {
    know,
    filled: async (looking, values, known) => {
      const limit = limitOf(values, known);
      const isGiven = NUMBERS.some(({ name }) => values[name] !== undefined);
      return limit && !isGiven ? textsOf(await numbersNow(looking, limit)) : {};
    },
    count: async (acting, values, known) => (limitOf(values, known) ? reachOf(acting, values) : undefined),
    changes: async (looking, values, known) => {
      const limit = limitOf(values, known);
      return limit && changesOf(looking, limit, columnsOf("set-limit", numbersIn(values)));
    },
    isRecorded: ({ definition }) => Boolean(definition?.load),
    replay: (acting, values) =>
      diff(acting, { ...aimOf(values), set: numbersIn(values), most: MOST_REPLAYED }),
  },
  clearLimit: {
    know,
    count: reachOf,
    changes: async (looking, values, known) => {
      const limit = limitOf(values, known);
      return limit && changesOf(looking, limit, null);
    },
  },
};

async function know(looking: OperateContext, { policy }: Values): Promise<Known> {
  const name = need("policy", policy);
  const where = `where policy = ${parameter(1, "text")}`;
  type Row = { readonly definition: PolicyDefinition };
  const [row] = await rowsOf<Row>(looking, "policies", where, [name], name);
  return { definition: row?.definition };
}

/** The limit that the values name. Undefined: they name no gate, or none of the policy. */
function limitOf({ policy, gate: name, key, where }: Values, { definition }: Known): Limit | undefined {
  const gate = definition?.gates.find((one) => one.name === name);
  return gate && { policy: need("policy", policy), gate, key, where };
}

/** The same for the verbs. */
function aimOf({ policy, gate, key, where }: Values) {
  return { policy: need("policy", policy), gate: need("gate", gate), key, where: whereIn(where) };
}

/** What a limit concerns: both verbs reach the same partitions, and the one that clears needs no numbers. */
function reachOf(acting: OperateContext, values: Values): Promise<Counted> {
  return runVerb(acting, "clearLimit", { ...aimOf(values), dryRun: true });
}

const SCOPES = { partition: "of each partition", key: "of each key", policy: "of the policy" } as const;

/** The gates of the policy. */
export function gatesOf({ definition }: Known): readonly Choice[] {
  return (definition?.gates ?? []).map((gate: Gate) => ({
    value: gate.name,
    says: `${gate.name} (${gate.kind.replace("_", " ")} ${SCOPES[gate.scope]})`,
  }));
}

export function numbersIn(values: Values): LimitValues {
  const given = NUMBERS.map(({ option, name }) => [
    option,
    option === "per" ? values[name] && durationIn(name, values[name]) : numberIn(name, values[name]),
  ]);
  return Object.fromEntries(given);
}

/** The same numbers as texts of the form, from what the database calls them. */
export function textsOf(set: Readonly<Record<string, unknown>>): Values {
  return Object.fromEntries(
    NUMBERS.flatMap(({ option, name }) => {
      const value = set[overridableFields[option]?.column ?? option];
      if (value === undefined || value === null) return [];
      return [[name, option === "per" ? `${value} seconds` : String(value)]];
    }),
  );
}

/** @throws {ArgumentError} unless it is an object. SQL says what is wrong with its values */
export function whereIn(given: string | undefined): ContextValues | undefined {
  if (given === undefined) return undefined;
  const value = parsed(given);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new ArgumentError(
      `where is ${JSON.stringify(given)}, expected values of the context as JSON, such as {"plan": "free"}`,
    );
  return value as ContextValues;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // the caller says what is expected
  }
}
