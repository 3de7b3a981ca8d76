import pg from "pg";
import { underReadCommitted } from "./isolation.ts";
import { asJson, asJsonLists, readLists, readRow } from "./rows.ts";

/** pg's Pool, Client and PoolClient; and what an ORM hands out, with a two-line adapter. */
export interface Queryable {
  // biome-ignore lint/suspicious/noExplicitAny: rows are whatever the statement returns
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>;
}

/**
 * In a statement: its transaction commits without waiting for the disk, so its locks are free that much sooner. A crash
 * of the server loses the last transactions, never one of the middle, and nobody acts by one that could be lost: a job
 * starts after its fetch is on the disk, and with it all that was before.
 */
export const COMMITS_AT_EASE = "pg_catalog.set_config('synchronous_commit', 'off', true)";

export type Statements = ReturnType<typeof makeStatements>;

/** How the functions of one installation's schema are asked; `schema` is quoted. */
export function makeStatements(schemaName: string) {
  const schema = pg.escapeIdentifier(schemaName);
  /** In the caller's transaction, or one that may have any isolation level: staging and looking. */
  const rowsAsIs = async <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T[]> =>
    (await client.query(asJson(text), values)).rows.map(readRow<T>);
  /** The same of a function's rows, where there are thousands. */
  const manyAsIs = async <T>(
    client: Queryable,
    columns: readonly (keyof T & string)[],
    call: string,
    values: unknown[],
  ): Promise<T[]> => (await client.query(asJsonLists(columns, call), values)).rows.flatMap(readLists<T>);
  /** In a transaction of its own, under READ COMMITTED. */
  const rows = <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T[]> =>
    underReadCommitted(client, () => rowsAsIs<T>(client, text, values));
  const first = async <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T> =>
    (await rows<T>(client, text, values))[0] as T;
  const count = async (client: Queryable, call: string, values: unknown[] = []): Promise<number> =>
    (await first<{ n: number }>(client, `select ${schema}.${call} as n`, values)).n;
  return { schema, rowsAsIs, manyAsIs, rows, first, count };
}

export function interval(ms: number): string {
  return `${ms} milliseconds`;
}
