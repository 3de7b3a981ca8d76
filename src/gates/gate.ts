import {
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

/** The same for every job, or worked out from the policy's context when a job is staged. */
export type Value<C, T> = T | ((ctx: C) => T);

/** What a gate counts over: each partition by itself, a key of its own, or everything the policy governs. */
export type GateScope = "partition" | "key" | "policy";

/** One of a gate's numbers, as the database stores it. */
export type GateNumber = number | boolean | null;

/**
 * A gate's values, by the names that the database's type of a gate's numbers gives them; `per` is in seconds. Which of
 * them are there depends on the kind.
 */
export type ResolvedValues = Readonly<Record<string, GateNumber>>;

/** What an operator may put in a number's place for a time. It is data, because SQL checks it. */
export interface OverrideRule {
  /** Completes "expected …". */
  readonly expects: string;
  readonly least: number;
  readonly most: number;
  readonly whole?: true;
  /** 0 is allowed, below `least`. */
  readonly zero?: true;
  /** `least` and `most` are meant without the sign. */
  readonly signed?: true;
}

export const overrides = {
  count: { expects: "a whole number, 0 to 999999999", least: 0, most: 999_999_999, whole: true },
  rate: { expects: "a number (0, or 1e-12 to 1e12)", least: 1e-12, most: 1e12, zero: true, signed: true },
  tokens: { expects: "a number, 0 or more (0, or 1e-12 to 1e12)", least: 1e-12, most: 1e12, zero: true },
  seconds: { expects: "seconds, more than 0 (1e-12 to 1e9)", least: 1e-12, most: 1e9 },
  milliseconds: { expects: "milliseconds, more than 0 (1e-12 to 1e12)", least: 1e-12, most: 1e12 },
} as const satisfies Record<string, OverrideRule>;

/** The options every gate has. */
export interface GateCommon<C> {
  /**
   * The name of this gate in overrides, in views and in what `explain` answers. Default: its kind (`throttle`, `concurrency`,
   * `adaptive_concurrency`), so that two gates of one kind need names. At most 128 characters; unique in a policy;
   * `"ahead"` is taken by the bound on jobs admitted ahead of the workers.
   */
  name?: string | undefined;
  /**
   * What the gate counts over. Default `"partition"`. `"policy"`: everything the policy governs, all shards included. A
   * function of the context gives the key to count by, a string or a finite number of at most 1,024 bytes: partitions
   * with the same key share the gate.
   */
  scope?: "partition" | "policy" | ((ctx: C) => string | number) | undefined;
}

/**
 * One limit of a policy. Made by a gate's function, such as `throttle`; frozen.
 *
 * `in C`: a gate that reads less of the context fits a policy that offers more.
 */
export interface Gate<in C = unknown, out Kind extends string = string> {
  readonly kind: Kind;
  readonly name: string;
  readonly scope: GateScope;
  /** Gives the key of a gate whose scope is `"key"`; not yet checked. */
  readonly scopeKey: ((ctx: C) => unknown) | null;
  /** The values, where none is a function of the context. */
  readonly values: ResolvedValues | null;
  /** The values for a context. @throws {ArgumentError} naming the gate, where a function throws or gives what it may not */
  readonly resolve: (ctx: C) => ResolvedValues;
  /** What an operator may set in its place for a time, by the number's name in the database. */
  readonly overrides: Readonly<Record<string, OverrideRule>>;
  /** The functions among the options, for the definition's hash. */
  readonly functions: Readonly<Record<string, () => unknown>>;
}

/** One value a gate takes: how it is declared, and what becomes of it. */
export interface Field {
  /** Its name in the database's type of a gate's numbers. */
  readonly column: string;
  readonly rule: Rule;
  /** Whether the option may be a function of the context. */
  readonly computed: boolean;
  /** What an omitted option stands for; without it the option is required. `"absent"`: the column is not mentioned. */
  readonly fallback?: number | null | "absent";
  /** From the declared value to the column's. Default: as it is. */
  readonly toColumn?: (value: never) => GateNumber;
  /** What an operator may set for a time; none: nothing. */
  readonly override?: OverrideRule;
  /** With this option, nothing. */
  readonly noOverrideWith?: string;
}

/** What tells the kinds apart. `disagreement` compares values with each other; where one is unknown it gets undefined. */
export interface GateAnatomy<Kind extends string = string> {
  readonly kind: Kind;
  readonly fields: Readonly<Record<string, Field>>;
  /** What options that stand for others mean. */
  readonly expand?: (title: string, options: Record<string, unknown>) => Record<string, unknown>;
  readonly disagreement?: (values: Readonly<Record<string, GateNumber | undefined>>) => string | undefined;
}

interface Compiled extends Omit<Field, "toColumn"> {
  readonly option: string;
  readonly run: ((ctx: unknown) => unknown) | null;
  readonly constant: GateNumber;
  readonly toColumn: (value: never) => GateNumber;
}

/**
 * Validates a gate's options and compiles them.
 *
 * @throws {PolicyDefinitionError} naming the gate, the option, its value and what was expected
 */
export function declareGate<C, Kind extends string>(
  anatomy: GateAnatomy<Kind>,
  options: GateCommon<C>,
): Gate<C, Kind> {
  return declaring("", () => {
    checkOptions(anatomy.kind, options, ["name", "scope", ...Object.keys(anatomy.fields)]);
    const name = gateName(anatomy.kind, options.name);
    const title = name === anatomy.kind ? name : `${anatomy.kind} "${name}"`;
    const gate = {
      kind: anatomy.kind,
      name,
      ...gateScope(title, options.scope),
      ...gateValues(title, anatomy, options),
      overrides: overridesOf(anatomy, options),
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

function gateValues(title: string, anatomy: GateAnatomy, declared: object): Pick<Gate, "values" | "resolve"> {
  const { expand = (_, asTheyAre) => asTheyAre } = anatomy;
  const options = expand(title, declared as Record<string, unknown>);
  const fields = Object.entries(anatomy.fields)
    .filter(([option, { fallback }]) => fallback !== "absent" || options[option] !== undefined)
    .map(([option, field]) => compileField(title, option, field, options[option]));
  const constants = fields.filter((field) => field.run === null);
  const known = refuseDisagreement(title, anatomy, read(title, constants, undefined));
  if (constants.length === fields.length) return { values: known, resolve: () => known };
  return { values: null, resolve: (ctx) => refuseDisagreement(title, anatomy, read(title, fields, ctx)) };
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

function refuseDisagreement(title: string, anatomy: GateAnatomy, values: ResolvedValues): ResolvedValues {
  const disagreement = anatomy.disagreement?.(values);
  if (disagreement !== undefined) throw new ArgumentError(`${title}: ${disagreement}`);
  return values;
}

function overridesOf({ fields }: GateAnatomy, options: object): Record<string, OverrideRule> {
  const given = Object.entries(options).flatMap(([option, value]) => (value === undefined ? [] : option));
  const open = Object.values(fields).filter(
    ({ override, noOverrideWith = "" }) => override !== undefined && !given.includes(noOverrideWith),
  );
  return Object.fromEntries(open.map(({ column, override }) => [column, override as OverrideRule]));
}

function functionsAmong(options: object): Record<string, () => unknown> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => typeof value === "function"));
}
