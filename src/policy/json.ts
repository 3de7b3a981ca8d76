import { isStorableText, show } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";

/** Values that survive JSON. The database stores contexts, and limits are worked out from them again. */
export type Json =
  | string
  | number
  | boolean
  | null
  | undefined
  | readonly Json[]
  | { readonly [key: string]: Json };
/** An object of values that survive JSON. */
export type JsonObject = { readonly [key: string]: Json };

/**
 * An object type whose values survive JSON: `C extends JsonOf<C>`. It takes an `interface`, which lacks the index signature of
 * {@link JsonObject}. An array is no such object.
 */
export type JsonOf<T> = object & { readonly [Symbol.iterator]?: never } & {
  readonly [K in keyof T]: JsonValueOf<T[K]>;
};
/** `never` where JSON would change or lose a value of the type. */
type JsonValueOf<T> = T extends Json
  ? T
  : T extends (...args: never[]) => unknown
    ? never
    : T extends object
      ? { readonly [K in keyof T]: JsonValueOf<T[K]> }
      : never;

/** Deeper than any sensible context. An object that contains itself reaches it before the stack overflows. */
const DEEPEST = 64;

/**
 * Refuses values that JSON changes or loses: promises, Dates, Maps, functions, bigints, NaN and Infinity, texts with NUL.
 * Also integers beyond 2^53 - 1: a text that a function makes of one, such as a key, might be two tenants'. A property that
 * is undefined is allowed, and is not stored.
 *
 * @throws {ArgumentError} naming the place and the value there
 */
export function checkJsonObject(what: string, value: unknown): asserts value is JsonObject {
  if (!isPlainObject(value))
    throw new ArgumentError(
      `${what} must return an object of JSON values, got ${show(value)}${isThenable(value) ? " (it must be synchronous)" : ""}`,
    );
  const flaw = flawOfObject(value, 0);
  if (flaw !== undefined) throw new ArgumentError(`${what} must return JSON values: ${what}${flaw}`);
}

/** Whether `value` is a promise. If so, its rejection is marked as handled, because nobody will await it. */
export function isThenable(value: unknown): boolean {
  if (
    typeof value !== "object" ||
    value === null ||
    typeof (value as PromiseLike<unknown>).then !== "function"
  )
    return false;
  Promise.resolve(value).catch(() => {});
  return true;
}

function isPlainObject(value: unknown): value is object {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** The first flaw, as the path to it and what it is: `.at is a Date`. */
function flawOf(value: unknown, depth: number): string | undefined {
  switch (typeof value) {
    case "boolean":
    case "undefined":
      return undefined;
    case "string":
      return isStorableText(value) ? undefined : " has a NUL or half a surrogate pair";
    case "number":
      if (Number.isInteger(value) && !Number.isSafeInteger(value))
        return ` is ${value}, which JavaScript may have rounded: make it a text`;
      return Number.isFinite(value) ? undefined : ` is ${value}`;
    case "object":
      return value === null ? undefined : flawOfObject(value, depth);
    default:
      return ` is ${show(value)}`;
  }
}

function flawOfObject(value: object, depth: number): string | undefined {
  if (depth > DEEPEST) return " contains itself, or is nested too deeply";
  const isArray = Array.isArray(value);
  if (!isArray && !isPlainObject(value)) return ` is ${show(value)}`;
  for (const key of Object.keys(value)) {
    if (!isStorableText(key)) return ` has a key with a NUL or half a surrogate pair: ${show(key)}`;
    const flaw = flawOf((value as Record<string, unknown>)[key], depth + 1);
    if (flaw !== undefined) return `${isArray ? `[${key}]` : `.${key}`}${flaw}`;
  }
  return undefined;
}
