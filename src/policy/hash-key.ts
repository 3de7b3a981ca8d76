import { createHash } from "node:crypto";
import { isStorableText, show } from "../checks/options.ts";
import { flawOfPayload } from "../checks/payload-flaw.ts";
import { ArgumentError } from "../errors.ts";
import { numberText } from "./key.ts";

/** 128 bits: no two values of one policy have the same hash by chance. */
const DIGITS = 32;

/**
 * A key for `partitionBy` or a gate's `scope` from any JSON value, such as a whole payload: 32 hex digits.
 *
 * Values that are equal as JSON have one key. The order of an object's keys does not count, and neither does the spelling of a
 * number. The SQL function `hash_key(value jsonb)` gives the same key. The value is hashed as JSON would store it: a Date is
 * its text, `NaN` is null, and an undefined property counts as absent.
 *
 * @throws {ArgumentError} if the value is undefined, a function, or has a text that PostgreSQL cannot store
 * @throws {ArgumentError} if it has an integer beyond 2^53 - 1, which JavaScript may have rounded
 * @throws {ArgumentError} if JSON would refuse or empty a part of it (a bigint, a Map, a Set, a promise, a cycle, 1,000 levels)
 * @example
 * hashKey({ b: 1, a: 2 }) === hashKey({ a: 2, b: 1 }); // true
 */
export function hashKey(value: unknown): string {
  const flaw = flawOfPayload(value, "the value");
  if (flaw !== undefined)
    throw new ArgumentError(
      `hashKey: ${flaw}, expected values that JSON can hold: make it a string or a number`,
    );
  const json = JSON.stringify(value);
  if (json === undefined)
    throw new ArgumentError(`hashKey: expected a value that JSON can hold, got ${show(value)}`);
  return createHash("sha256")
    .update(canonical(JSON.parse(json)))
    .digest("hex")
    .slice(0, DIGITS);
}

/** The text that `_canonical_json` writes in SQL. */
function canonical(value: unknown): string {
  if (typeof value === "string") return textOf(value);
  if (typeof value === "number") return numberOf(value);
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(", ")}]`;
  const entries = Object.entries(value).map(([key, inner]) => ({ key, bytes: Buffer.from(key), inner }));
  entries.sort((a, b) => a.bytes.length - b.bytes.length || Buffer.compare(a.bytes, b.bytes));
  return `{${entries.map(({ key, inner }) => `${textOf(key)}: ${canonical(inner)}`).join(", ")}}`;
}

function numberOf(value: number): string {
  if (Number.isInteger(value) && !Number.isSafeInteger(value))
    throw new ArgumentError(
      `hashKey: expected integers up to 2^53 - 1, because JavaScript rounds others, got ${numberText(value)}: make it a text`,
    );
  return numberText(value);
}

function textOf(text: string): string {
  if (!isStorableText(text))
    throw new ArgumentError(
      `hashKey: expected texts without NUL and without halves of surrogate pairs, got ${show(text)}`,
    );
  return JSON.stringify(text);
}
