import { parameter } from "../../db/engine.ts";
import { type Duration, durationMs } from "../../duration.ts";
import { ArgumentError } from "../../errors.ts";
import { overridableFields } from "../../gates/index.ts";
import type { OperateContext } from "../../operate/call.ts";
import { diff } from "../../operate/diff.ts";
import { clearLimit, columnsOf, type LimitValues, setLimit } from "../../operate/limits.ts";
import { literal } from "../../operate/quoted.ts";
import type { ContextValues } from "../../operate/targets.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/policy.ts";
import {
  type Action,
  after,
  type Choice,
  type Counted,
  durationIn,
  type Field,
  fromNow,
  type Gate,
  HOW_LONG,
  IF_EMPTY,
  type Known,
  need,
  numberIn,
  texts,
  type Values,
  whyOf,
} from "./form.ts";
import { changesOf, type Limit } from "./limit-changes.ts";

/** A thousand jobs take 7 to 14 s of a processor, and somebody waits for the page. */
const MOST_REPLAYED = 500;

type NumberOption = keyof LimitValues;

/** A gate's numbers as the form asks for them. Each is named as the flag of the command, and its hint as the table of changes. */
const NUMBERS: readonly (Field & { readonly option: NumberOption })[] = [
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

export const SET_LIMIT: Action = {
  about:
    "Gives a gate other numbers: for one key, for the partitions of a context, or for all. For numbers that are left out, the policy's own apply.",
  target: ["policy"],
  fields: [
    { name: "gate", label: "Gate", isRequired: true, choices: gatesOf },
    {
      ...{ name: "key", label: "Key", isKey: true, hint: `empty: every key of the gate; ${IF_EMPTY}` },
      isFor: ({ scope }) => scope !== "policy",
    },
    {
      ...{ name: "where", label: "Partitions whose context has" },
      hint: 'as JSON, such as {"plan": "free"}, in place of a key',
      isFor: ({ scope }) => scope === "partition",
    },
    ...NUMBERS,
    { name: "from", label: "Begins after", hint: `${HOW_LONG}; empty: at once` },
    { name: "for", label: "For how long", hint: `${HOW_LONG}; empty: until it is cleared` },
  ],
  know,
  // both verbs reach the same partitions, and this one needs no numbers
  count: async (acting, values, known) => (limitOf(values, known) ? reachOf(acting, values) : undefined),
  changes: async (looking, values, known) => {
    const limit = limitOf(values, known);
    return limit && changesOf(looking, limit, columnsOf("set-limit", numbersIn(values)));
  },
  isRecorded: ({ definition }) => Boolean(definition?.load),
  replay: (acting, values) => diff(acting, { ...aimOf(values), set: numbersIn(values), most: MOST_REPLAYED }),
  run: (acting, { reason, by, ...values }) =>
    setLimit(acting, {
      ...aimOf(values),
      set: numbersIn(values),
      from: after("from", values.from),
      until: after("for", endOf(values)),
      ...whyOf({ reason, by }),
    }),
  sql: (values) => {
    const { policy, gate, key, where } = values;
    const set = literal(JSON.stringify(columnsOf("set-limit", numbersIn(values))));
    const times = { from: fromNow(values.from), until: fromNow(endOf(values)) };
    return { ...texts({ policy, gate }), set, ...texts({ key, where }), ...times };
  },
  flags: (values) => {
    const { for: _, where: given, ...rest } = values;
    return { ...rest, where: pairsOf(whereIn(given)), until: endOf(values) };
  },
  inverse: "clear-limit",
};

export const CLEAR_LIMIT: Action = {
  about: "Ends what was set for the same keys, also what was to begin later.",
  target: ["policy", "gate", "key", "where"],
  fields: [],
  know,
  count: reachOf,
  changes: async (looking, values, known) => {
    const limit = limitOf(values, known);
    return limit && changesOf(looking, limit, null);
  },
  run: (acting, { reason, by, ...values }) =>
    clearLimit(acting, { ...aimOf(values), ...whyOf({ reason, by }) }),
  sql: texts,
  flags: ({ where, ...rest }) => ({ ...rest, where: pairsOf(whereIn(where)) }),
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

/** What a limit concerns. */
function reachOf(acting: OperateContext, values: Values): Promise<Counted> {
  return clearLimit(acting, { ...aimOf(values), dryRun: true });
}

const SCOPES = { partition: "of each partition", key: "of each key", policy: "of the policy" } as const;

/** The gates of the policy. */
function gatesOf({ definition }: Known): readonly Choice[] {
  return (definition?.gates ?? []).map((gate: Gate) => ({
    value: gate.name,
    says: `${gate.name} (${gate.kind.replace("_", " ")} ${SCOPES[gate.scope]})`,
  }));
}

function numbersIn(values: Values): LimitValues {
  const given = NUMBERS.map(({ option, name }) => [
    option,
    option === "per" ? values[name] && durationIn(name, values[name]) : numberIn(name, values[name]),
  ]);
  return Object.fromEntries(given);
}

/** How long from now on until it ends. */
function endOf({ from, for: length }: Values): Duration | undefined {
  if (length === undefined) return undefined;
  const lasts = durationIn("for", length);
  return from === undefined ? lasts : sumOf(durationIn("from", from), lasts);
}

const UNITS = [
  ["days", 86_400_000],
  ["hours", 3_600_000],
  ["minutes", 60_000],
  ["seconds", 1000],
] as const;

/** By the largest unit that needs no fraction. */
function sumOf(...durations: readonly Duration[]): Duration {
  const ms = durations.reduce((sum, one) => sum + durationMs(one), 0);
  const [unit, size] = UNITS.find(([, one]) => ms % one === 0) ?? (["ms", 1] as const);
  return `${ms / size} ${unit}`;
}

/** @throws {ArgumentError} unless it is an object. SQL says what is wrong with its values */
function whereIn(given: string | undefined): ContextValues | undefined {
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

/** As the command takes them. A text that would read as a number or a boolean is quoted. */
function pairsOf(where: ContextValues | undefined): readonly string[] | undefined {
  return (
    where &&
    Object.entries(where).map(([name, value]) => {
      const isPlain = typeof value !== "string" || !/^(-?[0-9.]+|true|false|".*")$/.test(value);
      return `${name}=${isPlain ? value : JSON.stringify(value)}`;
    })
  );
}
