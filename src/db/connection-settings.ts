import type pg from "pg";

/** Runs a callback with a client of a pool, as Graphile Worker's does. */
export type WithClient = <T>(callback: (client: pg.PoolClient) => Promise<T>) => Promise<T>;

/** The host's ways to its database, from which this package's own connections take their settings. */
export interface HostConnections {
  /** The host's way to its pool. It shows where to connect to, and is used while no other connection can be made. */
  readonly withPgClient: WithClient;
  /** The host's pool, if the host was given one. Its options may hold what a client does not show. */
  readonly pgPool?: unknown;
}

/** Settings for a connection to the host's database. Null if neither its pool nor its clients show them. */
export async function settingsOf({ pgPool, withPgClient }: HostConnections): Promise<pg.ClientConfig | null> {
  return poolSettings(pgPool) ?? (await withPgClient(async (one) => clientSettings(one)));
}

/** The pool makes its own clients with these. They work also if a password is a function, or `stream` is the host's own. */
function poolSettings(pool: unknown): pg.ClientConfig | null {
  const { options } = (pool ?? {}) as { options?: pg.ClientConfig & { password?: unknown } };
  // pg makes the password non-enumerable, so the spread leaves it out
  return options ? { ...options, password: options.password } : null;
}

/** Where a client is connected to. Null if it does not show that. */
function clientSettings(client: pg.PoolClient): pg.ClientConfig | null {
  const { connectionParameters } = client as unknown as { connectionParameters?: pg.ClientConfig };
  if (!connectionParameters) return null;
  const { user, password, host, port, database, ssl, options, application_name } = connectionParameters;
  const found = { user, password, host, port, database, ssl, options, application_name };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value != null));
}
