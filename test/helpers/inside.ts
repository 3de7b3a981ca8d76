import pg from "pg";
import type { Queryable } from "./engine.ts";
import { routineOf } from "./table.ts";

/**
 * Runs a statement where names are found as within the engine's functions. What is called from outside says itself where its
 * names are; a test may also call what is not.
 */
// biome-ignore lint/suspicious/noExplicitAny: rows of any shape
export async function inside(db: Queryable, text: string, values: unknown[] = []): Promise<any[]> {
  const client = db instanceof pg.Pool ? await db.connect() : db;
  try {
    await client.query("set search_path = pg_catalog, dispatch_policy_internal, pg_temp");
    const { rows } = await client.query(text, values);
    if (client === db) await client.query("reset search_path"); // after a failure the transaction's end takes it back
    return rows;
  } finally {
    if (client !== db) {
      await client.query("reset search_path");
      (client as pg.PoolClient).release();
    }
  }
}

/** Plants a mistake in a function of the engine, in this database. Rejects if its definition has not got what is replaced. */
export async function plantIn(
  db: Queryable,
  { name, of, from, to }: { name: string; of: string; from: RegExp | string; to: string },
): Promise<void> {
  const { rows } = await db.query("select pg_get_functiondef($1::regproc) as text", [routineOf(of)]);
  const sound: string = rows[0].text;
  const faulty = sound.replace(from, to);
  if (faulty === sound) throw new Error(`Nothing to plant "${name}" in: ${of} has changed`);
  await inside(db, faulty);
}
