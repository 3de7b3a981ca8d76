import pg from "pg";
import { rowsOf } from "./answers.ts";
import { underReadCommitted } from "./isolation.ts";
import { rethrowPlainly } from "./rethrow-plainly.ts";
import { asJson, asJsonLists, readLists, readRow } from "./rows.ts";
import { internalOf } from "./schemas.ts";

/**
 * pg's Pool, Client and PoolClient have this. {@link fromKysely}, {@link fromDrizzle}, {@link fromPrisma} and
 * {@link fromPostgresJs} make one from a transaction of theirs.
 *
 * If the database refuses the statement, `query` fails with an error that has PostgreSQL's code as `code`.
 */
export interface Queryable {
  // biome-ignore lint/suspicious/noExplicitAny: rows are whatever the statement returns
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>;
}

/**
 * In a statement: its transaction commits without waiting for the disk, so that its locks are free sooner.
 *
 * If the server crashes, it loses only the last transactions. No job runs because of a lost one: a job starts when its
 * fetch is on the disk, and with it all earlier transactions.
 */
export const COMMITS_AT_EASE = "pg_catalog.set_config('synchronous_commit', 'off', true)";

export type Statements = ReturnType<typeof makeStatements>;

/**
 * The ways to call the functions of one installation. `schema` is the quoted name of the schema that people see, `internal` that
 * of the one with the tables.
 */
export function makeStatements(schemaName: string) {
  const schema = pg.escapeIdentifier(schemaName);
  const internal = pg.escapeIdentifier(internalOf(schemaName));
  const ask = async (client: Queryable, text: string, values: unknown[]) => {
    try {
      return await rowsOf(client, text, values);
    } catch (error) {
      rethrowPlainly(error, schemaName, client);
    }
  };
  /** For staging and reading: in the caller's transaction, or in one of any isolation level. */
  const rowsAsIs = async <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T[]> =>
    (await ask(client, asJson(text), values)).map(readRow<T>);
  /** The same for a function that returns thousands of rows. */
  const manyAsIs = async <T>(
    client: Queryable,
    columns: readonly (keyof T & string)[],
    call: string,
    values: unknown[],
  ): Promise<T[]> => (await ask(client, asJsonLists(columns, call), values)).flatMap(readLists<T>);
  /** In a transaction of its own, under READ COMMITTED. */
  const rows = <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T[]> =>
    underReadCommitted(client, () => rowsAsIs<T>(client, text, values));
  const first = async <T>(client: Queryable, text: string, values: unknown[] = []): Promise<T> =>
    (await rows<T>(client, text, values))[0] as T;
  const count = async (client: Queryable, call: string, values: unknown[] = []): Promise<number> =>
    (await first<{ n: number }>(client, `select ${internal}.${call} as n`, values)).n;
  return { schema, internal, rowsAsIs, manyAsIs, rows, first, count };
}

/** PostgreSQL 14 takes no number from 2^31 on, which are 24 days of milliseconds. */
export function interval(ms: number): string {
  const seconds = ms / 1000;
  return Math.abs(seconds) < 2 ** 31 ? `${seconds.toFixed(6)} seconds` : `${seconds / 86_400} days`;
}
