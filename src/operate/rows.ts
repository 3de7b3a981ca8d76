/**
 * A view's row with its columns in camelCase. An infinite time, which pg returns as a number, becomes null.
 */
export function spelled<T>(row: object): T {
  return Object.fromEntries(
    Object.entries(row).map(([column, value]) => [camelCase(column), isInfinite(value) ? null : value]),
  ) as T;
}

/** The names of times in what a function returns as json, where they are texts. */
const TIMES = new Set([
  ...["as_of", "next_at", "run_at", "started_at", "admitted_at", "since", "from", "until", "at"],
  ...["added_at", "due_at", "last_admitted_at", "ended_at"],
]);

/** What a function returns as json, at all depths with names in camelCase and times as Dates. */
export function spelledJson<T>(value: unknown): T {
  if (Array.isArray(value)) return value.map((item) => spelledJson(item)) as T;
  if (typeof value !== "object" || value === null) return value as T;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [camelCase(name), spelledField(name, inner)]),
  ) as T;
}

function spelledField(name: string, value: unknown): unknown {
  // the names of a context are the application's, and those of reasons and gates stay as they are
  if (name === "where" || name === "waited" || name === "waited_by_gate") return value;
  if (name === "verb" && typeof value === "string") return camelCase(value);
  return TIMES.has(name) && typeof value === "string" ? new Date(value) : spelledJson(value);
}

function camelCase(column: string): string {
  return column.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function isInfinite(value: unknown): boolean {
  return value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY;
}
