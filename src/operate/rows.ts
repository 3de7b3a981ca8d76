/**
 * A view's row with its columns in camelCase. An infinite time, which pg returns as a number, becomes null.
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
