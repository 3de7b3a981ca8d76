import { types } from "node:util";
import { suggestion } from "../closest.ts";
import { DURATION_EXPECTED, durationMs, isDuration } from "../duration.ts";
import { ArgumentError, PolicyDefinitionError } from "../errors.ts";

/** The values that an option accepts, and the words for them in error messages. */
export interface Rule {
  /** Completes "… must be". */
  readonly expects: string;
  readonly accepts: (value: unknown) => boolean;
}

/** Every tick would fail if PostgreSQL's arithmetic overflowed or underflowed. Numbers in this range cannot cause that. */
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
  accepts: (value) => isDuration(value) && durationMs(value) / 1000 >= LEAST,
};

export const aBoolean: Rule = { expects: "true or false", accepts: (value) => typeof value === "boolean" };

export const aDate: Rule = {
  expects: "a valid Date",
  // also accepts a Date of another realm, which test runners make
  accepts: (value) => types.isDate(value) && !Number.isNaN(value.getTime()),
};

/**
 * PostgreSQL reads a name without a slash as an abbreviation, if there is one: its CET has no summer time, and Node's has.
 */
export const aTimeZone: Rule = {
  expects: '"UTC" or an area and a place, such as "America/New_York"',
  accepts: (value) =>
    typeof value === "string" && (value === "UTC" || value.includes("/")) && isKnownZone(value),
};

function isKnownZone(timeZone: string): boolean {
  try {
    return new Intl.DateTimeFormat("en", { timeZone }) !== undefined;
  } catch {
    return false;
  }
}

export const anEmitter: Rule = {
  expects: "an EventEmitter",
  accepts: (value) => typeof (value as { emit?: unknown } | null)?.emit === "function",
};

export const aFunction: Rule = { expects: "a function", accepts: (value) => typeof value === "function" };

/** The highest count of jobs that an option accepts. SQL adds to it, and the sum must fit into an integer. */
export const MOST_COUNTED = 2 ** 30;

/** By default up to the largest integer of PostgreSQL. */
export function wholeNumber(least: number, most = 2 ** 31 - 1): Rule {
  return {
    expects: `a whole number, ${least} to ${most}`,
    accepts: (value) =>
      Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
  };
}

/** A string that PostgreSQL can store: not empty, at most `most` characters, no NUL. */
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

/** A string that may be empty: a search text or a reason, not a name. */
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

/** Whether PostgreSQL stores a text unchanged. It refuses NUL, and turns halves of surrogate pairs into U+FFFD. */
export function isStorableText(value: string): boolean {
  return !value.includes("\0") && value.isWellFormed();
}

/** A foreign text, such as an error's message, changed so that PostgreSQL can store it. */
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
 * Like {@link check}, for a value that a function returned. A text may be a secret from the payload, so the error leaves
 * it out.
 *
 * @throws {ArgumentError}
 */
export function checkReturned(key: string, value: unknown, rule: Rule): void {
  if (typeof value !== "string") check(key, value, rule);
  else throw new ArgumentError(`${key} must be ${rule.expects}, got a string`);
}

/** Like {@link check}, for an option that may be left out. */
export function optional<T>(key: string, value: T, rule: Rule): T {
  if (value !== undefined) check(key, value, rule);
  return value;
}

/** @throws {ArgumentError} if `options` is no plain object, or has a key that is not among `known` */
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
 * Calls a function that is an option. If it throws, the error names the option.
 *
 * @throws {ArgumentError} with the function's error as its cause. A PolicyDefinitionError is thrown unchanged.
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
    // it comes from a gate that the function makes, and names that gate
    if (error instanceof PolicyDefinitionError) throw error;
    throw new ArgumentError(`${option} threw: ${error instanceof Error ? error.message : show(error)}`, {
      cause: error,
    });
  }
}

/**
 * Runs a step of a declaration. An error about a value becomes an error of the definition.
 *
 * @throws {PolicyDefinitionError} if `step` throws an ArgumentError or PolicyDefinitionError: its message, after `prefix`
 */
export function declaring<T>(prefix: string, step: () => T): T {
  try {
    return step();
  } catch (error) {
    if (!(error instanceof ArgumentError || error instanceof PolicyDefinitionError)) throw error;
    throw new PolicyDefinitionError(prefix + error.message, { cause: error.cause });
  }
}

/** A value as error messages show it: short, and never a whole payload. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "function") return "a function";
  if (typeof value === "bigint") return `the bigint ${value}n`;
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return "an array";
  if ("~policy" in value && "identifier" in value) return `the policy ${JSON.stringify(value.identifier)}`;
  const maker = value.constructor?.name ?? "Object";
  return maker === "Object" ? "an object" : `${/^[AEIOU]/.test(maker) ? "an" : "a"} ${maker}`;
}
