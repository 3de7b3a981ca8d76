import type { WithPgClient } from "graphile-worker";
import pg from "pg";

/** Runs a callback with a connection that cannot write, and sets nothing up. */
export async function looking<T>(
  connectionString: string,
  callback: (withPgClient: WithPgClient) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    await client.query("set default_transaction_read_only = on");
    return await callback((use) => use(client as unknown as pg.PoolClient)); // a client does for what is asked
  } finally {
    await client.end();
  }
}
