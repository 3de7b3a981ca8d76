import { types } from "node:util";
import { suggestion } from "../closest.ts";
import { DURATION_EXPECTED, isDuration } from "../duration.ts";
import { ArgumentError, PolicyDefinitionError } from "../errors.ts";

/** What an option's value has to be, and how to say so. */
export interface Rule {
  /** Completes "… must be". */
  readonly expects: string;
  readonly accepts: (value: unknown) => boolean;
}

/** Sums and products of such numbers neither overflow nor underflow, which PostgreSQL raises as errors of every tick. */
const MOST = 1e12;
const LEAST = 1e-12;

function isInRange(value: unknown): value is number {
  const size = typeof value === "number" ? Math.abs(value) : Number.NaN;
  return size === 0 || (size >= LEAST && size <= MOST);
}

export const finiteNumber: Rule = { expects: "a finite number (0, or 1e-12 to 1e12)", accepts: isInRange };

export const positiveNumber: Rule = {
  expects: "a finite number above 0 (1e-12 to 1e12)",
  accepts: (value) => isInRange(value) && value > 0,
};

export const numberFromZero: Rule = {
  expects: "a finite number, 0 or more (0, or 1e-12 to 1e12)",
  accepts: (value) => isInRange(value) && value >= 0,
};

export const aDuration: Rule = { expects: DURATION_EXPECTED, accepts: isDuration };

export const positiveDuration: Rule = {
  expects: `${DURATION_EXPECTED}, longer than 0`,
  // A duration carries no sign, so that any digit but 0 makes it longer than nothing.
  accepts: (value) => isDuration(value) && /[1-9]/.test(value),
};

export const aBoolean: Rule = { expects: "true or false", accepts: (value) => typeof value === "boolean" };

export const aDate: Rule = {
  expects: "a valid Date",
  // also one of another realm, as test runners make them
  accepts: (value) => types.isDate(value) && !Number.isNaN(value.getTime()),
};

export const aFunction: Rule = { expects: "a function", accepts: (value) => typeof value === "function" };

/** The most jobs to be told to count: SQL adds to it. */
export const MOST_COUNTED = 2 ** 30;

/** By default up to what PostgreSQL's integers hold. */
export function wholeNumber(least: number, most = 2 ** 31 - 1): Rule {
  return {
    expects: `a whole number, ${least} to ${most}`,
    accepts: (value) =>
      Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
  };
}

/** A string that PostgreSQL can hold: not empty, at most `most` characters, no NUL. */
export function text(most: number): Rule {
  return {
    expects: `a non-empty string of at most ${most} characters without NUL`,
    accepts: (value) =>
      typeof value === "string" &&
      value !== "" &&
      isStorableText(value) &&
      (value.length <= most || [...value].length <= most),
  };
}

/** Also an empty one: what is looked for, or said, not what is made. */
export const anyText: Rule = {
  expects: "a string without NUL",
  accepts: (value) => typeof value === "string" && isStorableText(value),
};

export function arrayOf(rule: Rule, what: string): Rule {
  return {
    expects: `an array of ${what}`,
    accepts: (value) => Array.isArray(value) && value.every(rule.accepts),
  };
}

export function oneOf(...values: readonly string[]): Rule {
  const quoted = values.map((value) => `"${value}"`);
  const expects = [quoted.slice(0, -1).join(", "), quoted.at(-1)].filter((part) => part !== "").join(" or ");
  return { expects, accepts: (value) => values.includes(value as string) };
}

/** A text that survives PostgreSQL: it has no NUL, and halves of surrogate pairs would silently turn into U+FFFD. */
export function isStorableText(value: string): boolean {
  return !value.includes("\0") && value.isWellFormed();
}

/** Somebody else's text, such as an error's message, as PostgreSQL can store it. */
export function storableText(value: string): string {
  return value.toWellFormed().replaceAll("\0", "\ufffd");
}

/** @throws {ArgumentError} naming key, value and expectation */
export function check(key: string, value: unknown, rule: Rule): void {
  if (rule.accepts(value)) return;
  throw new ArgumentError(
    value === undefined
      ? `${key} is missing: it must be ${rule.expects}`
      : `${key} must be ${rule.expects}, got ${show(value)}`,
  );
}

/**
 * As {@link check}, of what a function made of a payload or context: a text may be a secret from there, and stays out.
 *
 * @throws {ArgumentError}
 */
export function checkReturned(key: string, value: unknown, rule: Rule): void {
  if (typeof value !== "string") check(key, value, rule);
  else throw new ArgumentError(`${key} must be ${rule.expects}, got a string`);
}

/** As {@link check}, where the option may be left out. */
export function optional<T>(key: string, value: T, rule: Rule): T {
  if (value !== undefined) check(key, value, rule);
  return value;
}

/** @throws {ArgumentError} when `options` is no plain object, or has a key that is not among `known` */
export function checkOptions(
  owner: string,
  options: unknown,
  known: readonly string[],
): asserts options is Record<string, unknown> {
  if (typeof options !== "object" || options === null || Array.isArray(options))
    throw new ArgumentError(`${owner} must be given an object of options, got ${show(options)}`);
  for (const key of Object.keys(options)) {
    if (!known.includes(key))
      throw new ArgumentError(`unknown option "${key}" of ${owner}${suggestion(key, known, "options")}`);
  }
}

/**
 * Calls a function the user declared, so that what it throws says which option it was.
 *
 * @throws {ArgumentError} whose cause is what the function threw; a PolicyDefinitionError as it is
 */
export function callOption(
  option: string,
  run: (...args: never[]) => unknown,
  first?: unknown,
  second?: unknown,
  third?: unknown,
): unknown {
  try {
    return (run as (...args: unknown[]) => unknown)(first, second, third);
  } catch (error) {
    // A gate made inside the function has said what is wrong.
    if (error instanceof PolicyDefinitionError) throw error;
    throw new ArgumentError(`${option} threw: ${error instanceof Error ? error.message : show(error)}`, {
      cause: error,
    });
  }
}

/**
 * Runs a step of a declaration: what it finds wrong with a value is wrong with the definition.
 *
 * @throws {PolicyDefinitionError} with the message of the ArgumentError or PolicyDefinitionError that `step` threw, after
 * `prefix`
 */
export function declaring<T>(prefix: string, step: () => T): T {
  try {
    return step();
  } catch (error) {
    if (!(error instanceof ArgumentError || error instanceof PolicyDefinitionError)) throw error;
    throw new PolicyDefinitionError(prefix + error.message, { cause: error.cause });
  }
}

/** A value as an error message should name it: short, and never a whole payload. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "function") return "a function";
  if (typeof value === "bigint") return `the bigint ${value}n`;
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return "an array";
  const maker = value.constructor?.name ?? "Object";
  return maker === "Object" ? "an object" : `${/^[AEIOU]/.test(maker) ? "an" : "a"} ${maker}`;
}
