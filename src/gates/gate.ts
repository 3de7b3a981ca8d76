import {
  aBoolean,
  callOption,
  check,
  checkOptions,
  checkReturned,
  declaring,
  oneOf,
  type Rule,
  text,
} from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";

/** A value that is the same for every job, or a function that works it out from the policy's context when a job is added. */
export type Value<C, T> = T | ((ctx: C) => T);

/** The scope of a gate's count: each partition by itself, each key of the gate's own, or the whole policy. */
export type GateScope = "partition" | "key" | "policy";

/** One of a gate's numbers, as the database stores it. */
export type GateNumber = number | boolean | string | null;

/**
 * A gate's values, by their names in the database's type of a gate's numbers. `per` is in seconds. The kind decides which
 * of them there are.
 */
export type ResolvedValues = Readonly<Record<string, GateNumber>>;

/** The values by which an operator may override a number for a time. They are data, because SQL checks them. */
export interface OverrideRule {
  /** Completes "expected …". */
  readonly expects: string;
  readonly least: number;
  readonly most: number;
  readonly whole?: true;
  /** 0 is allowed, although it is below `least`. */
  readonly zero?: true;
  /** `least` and `most` apply to the number without its sign. */
  readonly signed?: true;
}

export const overrides = {
  count: { expects: "a whole number, 0 to 999999999", least: 0, most: 999_999_999, whole: true },
  rate: { expects: "a number (0, or 1e-12 to 1e12)", least: 1e-12, most: 1e12, zero: true, signed: true },
  tokens: { expects: "a number, 0 or more (0, or 1e-12 to 1e12)", least: 1e-12, most: 1e12, zero: true },
  seconds: { expects: "seconds, more than 0 (1e-12 to 1e9)", least: 1e-12, most: 1e9 },
  milliseconds: { expects: "milliseconds, more than 0 (1e-12 to 1e12)", least: 1e-12, most: 1e12 },
} as const satisfies Record<string, OverrideRule>;

/** The options that every gate has. */
export interface GateCommon<C> {
  /**
   * The gate's name in overrides, in views and in the result of `explain`. Two gates of one kind need names. At most
   * 128 characters; unique in a policy. `"ahead"` is reserved for the bound on jobs that are admitted ahead of the
   * workers.
   * @default its kind: `throttle`, `concurrency` or `adaptive_concurrency`
   */
  name?: string | undefined;
  /**
   * The jobs that the gate counts together. `"partition"`: those of one partition. `"policy"`: all jobs of the policy, in all
   * shards. A function of the context gives a key: partitions with the same key share the gate.
   *
   * The key is a string or a finite number, of at most 1,024 bytes. A number that JavaScript may have rounded is refused, as in
   * `partitionBy`.
   * @default "partition"
   */
  scope?: "partition" | "policy" | ((ctx: C) => string | number) | undefined;
  /**
   * `true`: the gate decides and counts, and holds nothing back.
   *
   * So you see what a new limit would do before it does it: in `explain`, in the view `minutes` and in the metric
   * `shadow_denied_total`.
   * @default false
   */
  shadow?: boolean | undefined;
}

/**
 * One limit of a policy. Made by a gate's function, such as `throttle`. Frozen.
 *
 * `in C`: a gate that reads a part of the context fits a policy with more context.
 */
export interface Gate<in C = unknown, out Kind extends string = string> {
  readonly kind: Kind;
  readonly name: string;
  readonly scope: GateScope;
  /** Gives the key of a gate whose scope is `"key"`; not yet checked. */
  readonly scopeKey: ((ctx: C) => unknown) | null;
  /** The values. Null: at least one is a function of the context. */
  readonly values: ResolvedValues | null;
  /** Those of the values that are no functions. */
  readonly constants: ResolvedValues;
  /** The values for a context. @throws {ArgumentError} naming the gate, if a function throws or returns a wrong value */
  readonly resolve: (ctx: C) => ResolvedValues;
  /** The numbers that an operator may override for a time, by their names in the database. */
  readonly overrides: Readonly<Record<string, OverrideRule>>;
  /** The functions among the options, for the definition's hash. */
  readonly functions: Readonly<Record<string, () => unknown>>;
  /** Of a gate made by `shared`: the limit that it names, as a policy without tasks. */
  readonly shared?: unknown;
}

/** One option of a gate: how it is declared, checked and stored. */
export interface Field {
  /** Its name in the database's type of a gate's numbers. */
  readonly column: string;
  readonly rule: Rule;
  /** Whether the option may be a function of the context. */
  readonly computed: boolean;
  /** The value of an option that is left out; without a fallback the option is required. `"absent"`: no value is stored. */
  readonly fallback?: number | null | "absent";
  /** Turns the declared value into the stored one. Default: unchanged. */
  readonly toColumn?: (value: never) => GateNumber;
  /** The values that an operator may set for a time. Without it the number cannot be overridden. */
  readonly override?: OverrideRule;
  /** If one of these options is given, the number cannot be overridden. */
  readonly noOverrideWith?: readonly string[];
}

/**
 * The differences between kinds of gates. `disagreement` compares values with each other, and with those that are no functions;
 * an unknown one is undefined.
 */
export interface GateAnatomy<Kind extends string = string> {
  readonly kind: Kind;
  readonly fields: Readonly<Record<string, Field>>;
  /** Replaces options that stand for others. */
  readonly expand?: (title: string, options: Record<string, unknown>) => Record<string, unknown>;
  readonly disagreement?: (
    values: Readonly<Record<string, GateNumber | undefined>>,
    constants: Readonly<Record<string, GateNumber | undefined>>,
  ) => string | undefined;
}

type Overridable<Fields> = Fields extends unknown
  ? {
      [Option in keyof Fields as Fields[Option] extends { override: OverrideRule } ? Option : never]?:
        | (Fields[Option] extends { toColumn: (value: infer Given) => GateNumber } ? Given : number)
        | undefined;
    }
  : never;

/** The options of all these fields that have an `override`, each with the type in which it is declared. */
export type Overrides<Fields> = (
  Overridable<Fields> extends infer Each
    ? Each extends unknown
      ? (each: Each) => void
      : never
    : never
) extends (all: infer All) => void
  ? { [Option in keyof All]: All[Option] }
  : never;

/** The options that every gate has, and that the database stores with its numbers. */
const COMMON: Readonly<Record<string, Field>> = {
  shadow: {
    column: "shadow",
    rule: aBoolean,
    computed: false,
    fallback: "absent",
    toColumn: (shadow: boolean) => shadow || null,
  },
};

interface Compiled extends Omit<Field, "toColumn"> {
  readonly option: string;
  readonly run: ((ctx: unknown) => unknown) | null;
  readonly constant: GateNumber;
  readonly toColumn: (value: never) => GateNumber;
}

/**
 * Validates a gate's options and compiles them.
 *
 * @throws {PolicyDefinitionError} naming the gate, the option, its value and the expectation
 */
export function declareGate<C, Kind extends string>(
  anatomy: GateAnatomy<Kind>,
  options: GateCommon<C>,
): Gate<C, Kind> {
  return declaring("", () => {
    checkOptions(anatomy.kind, options, ["name", "scope", ...Object.keys({ ...anatomy.fields, ...COMMON })]);
    const name = gateName(anatomy.kind, options.name);
    const title = name === anatomy.kind ? name : `${anatomy.kind} "${name}"`;
    const { expand = (_, asTheyAre) => asTheyAre } = anatomy as GateAnatomy;
    const expanded = expand(title, options as Record<string, unknown>);
    const gate = {
      kind: anatomy.kind,
      name,
      ...gateScope(title, options.scope),
      ...gateValues(title, anatomy, expanded),
      overrides: overridesOf(anatomy, expanded),
      functions: functionsAmong(options),
    };
    return Object.freeze(gate) as Gate<C, Kind>;
  });
}

function gateName(kind: string, name: unknown): string {
  if (name === undefined) return kind;
  check(`name of ${kind}`, name, text(128));
  if (name === "ahead")
    throw new ArgumentError(
      `name of ${kind} must not be "ahead": that gate is the bound on jobs admitted ahead of the workers`,
    );
  return name as string;
}

function gateScope(title: string, scope: unknown): { scope: GateScope; scopeKey: unknown } {
  if (typeof scope === "function") return { scope: "key", scopeKey: scope };
  const fixed = scope === undefined ? "partition" : scope;
  const expected = oneOf("partition", "policy");
  check(`${title}: scope`, fixed, {
    ...expected,
    expects: `${expected.expects} or a function of the context`,
  });
  return { scope: fixed as GateScope, scopeKey: null };
}

function gateValues(
  title: string,
  anatomy: GateAnatomy,
  options: Readonly<Record<string, unknown>>,
): Pick<Gate, "values" | "constants" | "resolve"> {
  const fields = Object.entries({ ...anatomy.fields, ...COMMON })
    .filter(([option, { fallback }]) => fallback !== "absent" || options[option] !== undefined)
    .map(([option, field]) => compileField(title, option, field, options[option]));
  const constants = fields.filter((field) => field.run === null);
  const fixed = read(title, constants, undefined);
  const known = refuseDisagreement(title, anatomy, fixed, fixed);
  if (constants.length === fields.length) return { values: known, constants: known, resolve: () => known };
  return {
    values: null,
    constants: known,
    resolve: (ctx) => refuseDisagreement(title, anatomy, read(title, fields, ctx), known),
  };
}

function compileField(title: string, option: string, field: Field, value: unknown): Compiled {
  const { fallback, toColumn = (asItIs: GateNumber) => asItIs } = field;
  if (typeof value === "function" && field.computed)
    return { ...field, toColumn, option, run: value as () => unknown, constant: null };
  if (value === undefined && fallback !== undefined && fallback !== "absent")
    return { ...field, toColumn, option, run: null, constant: fallback };
  const expects = field.computed ? `${field.rule.expects}, or a function of the context` : field.rule.expects;
  check(`${title}: ${option}`, value, { ...field.rule, expects });
  return { ...field, toColumn, option, run: null, constant: toColumn(value as never) };
}

function read(title: string, fields: readonly Compiled[], ctx: unknown): ResolvedValues {
  const values: Record<string, GateNumber> = {};
  for (const field of fields)
    values[field.column] = field.run === null ? field.constant : compute(title, field, ctx);
  return Object.freeze(values);
}

function compute(title: string, field: Compiled, ctx: unknown): GateNumber {
  const key = `${title}: ${field.option}`;
  const value = callOption(key, field.run as () => unknown, ctx);
  if (!field.rule.accepts(value)) checkReturned(`${key} returned by its function`, value, field.rule);
  return field.toColumn(value as never);
}

function refuseDisagreement(
  title: string,
  anatomy: GateAnatomy,
  values: ResolvedValues,
  constants: ResolvedValues,
): ResolvedValues {
  const disagreement = anatomy.disagreement?.(values, constants);
  if (disagreement !== undefined) throw new ArgumentError(`${title}: ${disagreement}`);
  return values;
}

function overridesOf({ fields }: GateAnatomy, options: object): Record<string, OverrideRule> {
  const given = Object.entries(options).flatMap(([option, value]) => (value === undefined ? [] : option));
  const open = Object.values(fields).filter(
    ({ override, noOverrideWith = [] }) =>
      override !== undefined && !noOverrideWith.some((option) => given.includes(option)),
  );
  return Object.fromEntries(open.map(({ column, override }) => [column, override as OverrideRule]));
}

function functionsAmong(options: object): Record<string, () => unknown> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => typeof value === "function"));
}
