import pg from "pg";
import { type HostConnections, settingsOf } from "./connection-settings.ts";
import { prepareSession } from "./own-session.ts";

/**
 * Runs a callback with a connection beside the host's pool, for work that keeps one for long: a pool of one would have
 * none left. If the host does not show where to connect to, the connection is one of the pool's.
 */
export async function withOwnClient<T>(
  host: HostConnections,
  callback: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const settings = await settingsOf(host);
  if (!settings) return host.withPgClient((client) => callback(client as unknown as pg.Client));
  const client = new pg.Client({ ...settings, keepAlive: true });
  client.on("error", () => {});
  try {
    await client.connect();
    await prepareSession(client);
    return await callback(client);
  } finally {
    await client.end().catch(() => {}); // the callback has its answer, and the server ends a lost connection
  }
}
