import type pg from "pg";
import { rowsOf } from "./answers.ts";
import type { Queryable } from "./statements.ts";

/** Every decision runs under READ COMMITTED: with a fixed snapshot it would miss what others have changed since. */
const BEGIN = "begin isolation level read committed";

/**
 * Whether READ COMMITTED is the default of a connection. The role, the database or the connection's options may set
 * another level. Each connection is asked once.
 */
const defaults = new WeakMap<object, boolean>();

/** Makes READ COMMITTED the default of one of this package's own connections. */
export async function readCommittedByDefault(client: Queryable): Promise<void> {
  defaults.set(client, true);
  await client.query("set session characteristics as transaction isolation level read committed");
}

/** How long a statement of one of this package's own connections may take, and may wait for a lock: then the server ends it. */
export async function limitStatements(client: Queryable, ms: number): Promise<void> {
  await client.query(`set statement_timeout = ${ms}; set lock_timeout = ${ms}`);
}

/** Runs a single statement under READ COMMITTED. Only a session with another default needs a transaction for it. */
export async function underReadCommitted<T>(client: Queryable, run: () => Promise<T>): Promise<T> {
  let isDefault = defaults.get(client);
  if (isDefault === undefined) {
    const text = "select pg_catalog.current_setting('default_transaction_isolation') as level";
    const [setting] = await rowsOf(client, text, []);
    isDefault = setting.level === "read committed";
    defaults.set(client, isDefault);
  }
  return isDefault ? run() : inTransaction(client, run);
}

/** Runs statements in a transaction of their own, under READ COMMITTED. */
export async function inTransaction<T>(client: Queryable, run: () => Promise<T>): Promise<T> {
  await client.query(BEGIN);
  try {
    const result = await run();
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback").catch(() => {}); // if the connection is lost, the transaction is rolled back anyway
    throw error;
  }
}

/** Within a transaction: if the statements fail, only they are undone. */
export async function inSavepoint<T>(client: Queryable, run: () => Promise<T>): Promise<T> {
  await client.query("savepoint dispatch_policy");
  try {
    const result = await run();
    await client.query("release savepoint dispatch_policy");
    return result;
  } catch (error) {
    await client.query("rollback to savepoint dispatch_policy");
    throw error;
  }
}

/** Whether each call of `query` is a transaction of its own, as with pg's Pool. A client may be inside one. */
export function isPool(client: Queryable): boolean {
  return typeof (client as Partial<pg.Pool>).totalCount === "number";
}
