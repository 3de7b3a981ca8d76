/**
 * A view's row as JavaScript spells it: columns in camelCase. A time that is infinite, which pg gives as a number, is null.
 */
export function spelled<T>(row: object): T {
  return Object.fromEntries(
    Object.entries(row).map(([column, value]) => [camelCase(column), isInfinite(value) ? null : value]),
  ) as T;
}

function camelCase(column: string): string {
  return column.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function isInfinite(value: unknown): boolean {
  return value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY;
}
