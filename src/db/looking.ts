import type { WithPgClient } from "graphile-worker";
import pg from "pg";

/** Runs a callback with a connection that cannot write, unless a pooler stands before the server. It sets nothing up. */
export async function looking<T>(
  connectionString: string,
  callback: (withPgClient: WithPgClient) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    // behind a pooler the setting would stay in a session that others get
    const { rows } = await client.query("select pg_catalog.pg_backend_pid() as pid");
    const isDirect = rows[0].pid === (client as unknown as { processID: number | null }).processID;
    if (isDirect) await client.query("set default_transaction_read_only = on");
    return await callback((use) => use(client as unknown as pg.PoolClient)); // a client does for what is asked
  } finally {
    await client.end();
  }
}
