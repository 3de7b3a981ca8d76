import type { ClientBase } from "pg";
import { readCommittedByDefault } from "./isolation.ts";

/**
 * What a session of this package's own has, whatever the role, the database or a pooler in session mode sets. Statements have
 * their names qualified, times are read as PostgreSQL writes them by default, and plans go by its own methods. Some settings
 * are younger than the oldest PostgreSQL that is supported.
 */
const SETTINGS = [
  "set search_path = pg_catalog, pg_temp",
  "set default_transaction_read_only = off",
  "set datestyle = 'ISO, MDY'",
  "set intervalstyle = 'postgres'",
  "set extra_float_digits = 1",
  "set bytea_output = 'hex'",
  ...["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"].map(
    (name) => `set ${name} = 0`,
  ),
  "select set_config(name, '0', false) from pg_settings where name in ('idle_session_timeout', 'transaction_timeout')",
  `select set_config(name, boot_val, false) from pg_settings
   where category in ('Query Tuning / Planner Method Configuration', 'Query Tuning / Other Planner Options')
     and setting <> boot_val`,
  "set jit = off",
].join(";\n");

/**
 * Prepares a connection of this package's own. Behind a pooler in transaction mode, others would get the session as well.
 *
 * @param alone whether the session serves it alone, if that is known
 */
export async function prepareSession(client: ClientBase, alone?: boolean): Promise<void> {
  await readCommittedByDefault(client);
  if (alone ?? (await isDirect(client))) await client.query(SETTINGS);
}

/** Whether the session serves this connection alone: a pooler gives its clients process ids of its own. */
export async function isDirect(client: ClientBase): Promise<boolean> {
  const { rows } = await client.query("select pg_catalog.pg_backend_pid() as pid");
  return rows[0].pid === (client as unknown as { processID: number | null }).processID;
}
