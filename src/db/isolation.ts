import type { Queryable } from "./statements.ts";

/** A transaction of this package's own: a fixed snapshot would decide by what others have since changed. */
const BEGIN = "begin isolation level read committed";

/**
 * Connections, by whether a statement alone runs under READ COMMITTED there: the role, the database or the connection's
 * options may say otherwise. Each is asked once.
 */
const defaults = new WeakMap<object, boolean>();

/** Makes READ COMMITTED the default of a connection that is this package's own. */
export async function readCommittedByDefault(client: Queryable): Promise<void> {
  defaults.set(client, true);
  await client.query("set session characteristics as transaction isolation level read committed");
}

/** Runs what is one statement under READ COMMITTED. Only a session with another default takes a transaction for it. */
export async function underReadCommitted<T>(client: Queryable, run: () => Promise<T>): Promise<T> {
  let isDefault = defaults.get(client);
  if (isDefault === undefined) {
    const { rows } = await client.query(
      "select pg_catalog.current_setting('default_transaction_isolation') as level",
    );
    isDefault = rows[0].level === "read committed";
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
    await client.query("rollback").catch(() => {}); // the connection is lost: so is the transaction
    throw error;
  }
}

/** Within a transaction: what fails is undone alone. */
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
