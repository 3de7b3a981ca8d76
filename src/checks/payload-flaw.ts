import { types } from "node:util";

/** Deeper than any sensible payload, and less deep than what overflows the stack of JavaScript or of PostgreSQL. */
const DEEPEST = 1000;
const LONGEST_PATH = 100;

/**
 * The first value of a payload that JSON would refuse, or store as `{}`: its path and what it is, `at[0] is a bigint`.
 * Undefined: there is none. The value may be a secret, so it is left out.
 *
 * Other values are stored as JSON stores them, as by Graphile Worker: a Date as a text, NaN as null, a function not at all.
 */
export function flawOfPayload(payload: unknown, root = "payload"): string | undefined {
  const flaw = isSuspect(payload) ? flawOf(payload, []) : undefined;
  if (flaw === undefined) return undefined;
  const path = flaw.steps.reverse().join("");
  return `${root}${path.length > LONGEST_PATH ? `${path.slice(0, LONGEST_PATH)}…` : path} ${flaw.what}`;
}

/** A payload as its job will get it: as JSON stores it. The same value if JSON changes nothing, which is cheaper to see. */
export function asStored(payload: unknown): unknown {
  if (isJson(payload, 0)) return payload;
  const json = JSON.stringify(payload);
  return json === undefined ? undefined : JSON.parse(json);
}

function isJson(value: unknown, depth: number): boolean {
  if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0);
  if (typeof value !== "object") return typeof value === "string" || typeof value === "boolean";
  if (value === null) return true;
  const prototype = Object.getPrototypeOf(value);
  const isArray = prototype === Array.prototype && Object.keys(value).length === (value as unknown[]).length;
  if (depth > DEEPEST || (!isArray && prototype !== Object.prototype)) return false;
  return Object.values(value).every((inner) => isJson(inner, depth + 1));
}

interface Flaw {
  readonly what: string;
  /** From the value to the payload. */
  readonly steps: string[];
}

function isSuspect(value: unknown): boolean {
  return (typeof value === "object" && value !== null) || typeof value === "bigint";
}

function flawOf(value: unknown, parents: object[]): Flaw | undefined {
  const what = whatIsWrong(value, parents);
  if (what !== undefined) return { what, steps: [] };
  if (typeof value !== "object" || value === null || hasToJson(value)) return undefined;
  parents.push(value);
  const isArray = Array.isArray(value);
  for (const key of isArray ? value.keys() : Object.keys(value)) {
    const inner = (value as Record<string | number, unknown>)[key];
    const flaw = isSuspect(inner) ? flawOf(inner, parents) : undefined;
    if (flaw === undefined) continue;
    flaw.steps.push(isArray ? `[${key}]` : `.${key}`);
    return flaw;
  }
  parents.pop();
  return undefined;
}

function whatIsWrong(value: unknown, parents: readonly object[]): string | undefined {
  if (typeof value === "bigint") return hasToJson(BigInt.prototype) ? undefined : "is a bigint";
  if (typeof value !== "object" || value === null || hasToJson(value)) return undefined;
  if (types.isMap(value)) return "is a Map";
  if (types.isSet(value)) return "is a Set";
  if (types.isPromise(value)) return "is a promise";
  if (parents.includes(value)) return "is an object that contains itself";
  return parents.length >= DEEPEST ? `is nested more than ${DEEPEST} levels deep` : undefined;
}

function hasToJson(value: object): boolean {
  return typeof (value as { toJSON?: unknown }).toJSON === "function";
}
