import type { WithPgClient } from "graphile-worker";
import pg from "pg";
import { isDirect, prepareSession } from "./own-session.ts";
import { quietPool } from "./quiet-pool.ts";

type Use<T> = (withPgClient: WithPgClient) => Promise<T>;

/** Runs a callback with one connection of its own, and sets nothing up. */
export function connected<T>(connectionString: string, use: Use<T>): Promise<T> {
  return withClient(connectionString, prepareSession, use);
}

/** The same with a connection that cannot write, unless a pooler stands before the server. */
export function looking<T>(connectionString: string, use: Use<T>): Promise<T> {
  return withClient(connectionString, readOnlyByDefault, use);
}

/** A few connections for pages. Without a string, PG* says where. */
export function openPool(connectionString: string | undefined): pg.Pool {
  return quietPool({
    ...{ connectionString, max: 4, fallback_application_name: "dispatch_policy" },
    verify: (client, done) => void prepareSession(client).then(() => done(), done),
  });
}

/** Behind a pooler the setting would stay in a session that others get. */
async function readOnlyByDefault(client: pg.Client): Promise<void> {
  await prepareSession(client);
  if (await isDirect(client)) await client.query("set default_transaction_read_only = on");
}

async function withClient<T>(
  connectionString: string,
  prepare: (client: pg.Client) => Promise<unknown>,
  use: Use<T>,
): Promise<T> {
  const client = new pg.Client({ connectionString, fallback_application_name: "dispatch_policy" });
  client.on("error", () => {}); // a lost connection: the statement that is next reports it
  try {
    await client.connect();
    await prepare(client);
    // a client does for what is asked of a pool's
    return await use((callback) => callback(client as unknown as pg.PoolClient));
  } finally {
    await client.end().catch(() => {}); // the callback has its answer, and the server ends a lost connection
  }
}
