import { isStorableText, show } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";

/** A row of a PostgreSQL btree may take a third of a page, and keys are indexed beside other columns. */
const LONGEST_KEY_BYTES = 1024;

/** JavaScript keeps this many digits of any number. */
const KEPT_DIGITS = 15;

/**
 * The text of a partition's or a scope's key. A number becomes text, so that 5 and "5" are one key; the empty string is
 * a key like any other. `_number_key` in SQL has the same rule for numbers.
 *
 * @throws {ArgumentError} if `value` is neither a string nor a finite number, is longer than 1,024 bytes in UTF-8, or has
 * characters that PostgreSQL cannot store
 * @throws {ArgumentError} if `value` is a number that may have been rounded, because then two tenants might share a key
 */
export function keyText(what: string, value: unknown): string {
  const key = typeof value === "number" && Number.isFinite(value) ? numberKey(what, value) : value;
  if (typeof key !== "string")
    throw new ArgumentError(`${what} must give a string or a finite number, got ${show(value)}`);
  if (!isStorableText(key))
    throw new ArgumentError(
      `${what} must give a text without NUL and without halves of surrogate pairs, got ${show(key)}`,
    );
  // a UTF-16 unit takes at most three bytes, so most keys need not be measured
  if (key.length * 3 > LONGEST_KEY_BYTES) {
    const bytes = Buffer.byteLength(key);
    if (bytes > LONGEST_KEY_BYTES)
      throw new ArgumentError(
        `${what} must give at most ${LONGEST_KEY_BYTES} bytes, got ${bytes}: ${show(key)}`,
      );
  }
  return key;
}

/**
 * The key that dotted paths into a payload give. For one path it is the bare text, for several the JSON array of the
 * texts, `["acct:1","7"]`.
 *
 * A mere separator would be ambiguous: joined by ":", `a:b` and `c` give the same text as `a` and `b:c`. SQL writes the
 * same array with `to_json(array['acct:1', '7'])::text`, but not with `to_jsonb`, which adds spaces.
 */
export function keyFromPaths(paths: readonly (readonly string[])[], payload: unknown): string {
  const [only, second] = paths;
  if (only !== undefined && second === undefined) return keyText(pathTitle(only), valueAt(payload, only));
  const texts = paths.map((path) => keyText(pathTitle(path), valueAt(payload, path)));
  return keyText("partitionBy", JSON.stringify(texts));
}

function pathTitle(path: readonly string[]): string {
  return `partitionBy "${path.join(".")}"`;
}

/** As `payload #>> path` in SQL: own properties, and positions in arrays. */
function valueAt(payload: unknown, path: readonly string[]): unknown {
  let value = payload;
  for (const step of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    if (Array.isArray(value) && !/^\d+$/.test(step)) return undefined;
    value = (value as Record<string, unknown>)[step];
  }
  return value;
}

function numberKey(what: string, value: number): string {
  const text = numberText(value);
  if (!isExact(value))
    throw new ArgumentError(
      `${what} must give an integer up to 2^53 - 1 or at most ${KEPT_DIGITS} digits, because JavaScript rounds others, got ${text}: ` +
        "make it a text",
    );
  return text;
}

/** Whether JavaScript keeps all digits of a number that reads like this. Otherwise another number may have been read. */
export function isExact(value: number): boolean {
  if (Number.isInteger(value)) return Number.isSafeInteger(value);
  const digits = numberText(value).replace(/[-.]/g, "").replace(/^0+/, "");
  return Number.isFinite(value) && digits.length <= KEPT_DIGITS;
}

/** A number as PostgreSQL's jsonb writes it: never with an exponent. JavaScript writes 1e-7 and 1e+21. */
export function numberText(value: number): string {
  const plain = String(value);
  const [, sign, whole, fraction = "", power] = /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(plain) ?? [];
  if (whole === undefined) return plain;
  const digits = whole + fraction;
  const point = 1 + Number(power);
  return point <= 0 ? `${sign}0.${"0".repeat(-point)}${digits}` : `${sign}${digits.padEnd(point, "0")}`;
}
