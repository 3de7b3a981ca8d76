import { isStorableText, show } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";

/** PostgreSQL's btree takes rows of up to a third of a page; keys are indexed beside other columns. */
const LONGEST_KEY_BYTES = 1024;

/**
 * The text of a partition's or a scope's key. A number becomes text, so that 5 and "5" are one key; the empty string is
 * a key like any other.
 *
 * @throws {ArgumentError} when `value` is neither a string nor a finite number, is longer than 1,024 bytes in UTF-8, or
 * holds what PostgreSQL cannot store
 */
export function keyText(what: string, value: unknown): string {
  const key = typeof value === "number" && Number.isFinite(value) ? numberText(value) : value;
  if (typeof key !== "string")
    throw new ArgumentError(`${what} must give a string or a finite number, got ${show(value)}`);
  if (!isStorableText(key))
    throw new ArgumentError(
      `${what} must give a text without NUL and without halves of surrogate pairs, got ${show(key)}`,
    );
  // No UTF-16 unit takes more than three bytes: most keys need not be measured.
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
 * The key that dotted paths into a payload give: for one path the bare text, for several the JSON array of the texts,
 * `["acct:1","7"]`. A mere separator would be ambiguous, since `a:b` and `c` joined by ":" look like `a` and `b:c`; JSON
 * quotes its texts, and SQL writes the very same with `to_json(array['acct:1', '7'])::text` (not `to_jsonb`, which adds
 * spaces).
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

/** A number as PostgreSQL's jsonb writes it: never with an exponent, where JavaScript writes 1e-7 and 1e+21. */
function numberText(value: number): string {
  const plain = String(value);
  const [, sign, whole, fraction = "", power] = /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(plain) ?? [];
  if (whole === undefined) return plain;
  const digits = whole + fraction;
  const point = 1 + Number(power);
  return point <= 0 ? `${sign}0.${"0".repeat(-point)}${digits}` : `${sign}${digits.padEnd(point, "0")}`;
}
