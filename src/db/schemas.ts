/**
 * The schema with the tables, and with the functions that this package alone calls. A statement may name it as :DISPATCH_POLICY_INTERNAL; the
 * functions and views have it in their search path.
 */
export function internalOf(schema: string): string {
  return `${schema}_internal`;
}

/** Graphile Worker's schema and this package's own, unquoted. {@link internalOf} derives a third. */
export interface Schemas {
  readonly worker: string;
  readonly own: string;
}
