import pg from "pg";
import type { Queryable } from "./engine.ts";
import { readCommittedByDefault } from "./isolation.ts";

/** Runs a callback with a client of a pool, as Graphile Worker's does. */
type WithClient = <T>(callback: (client: pg.PoolClient) => Promise<T>) => Promise<T>;

export interface OwnPoolOptions extends Omit<OwnConnectionOptions, "onFallback"> {
  /** Connections at most. */
  readonly max: number;
}

export interface OwnConnectionOptions {
  /** The host's way to its pool: says where to connect to, and stands in while the connection cannot be made. */
  readonly withPgClient: WithClient;
  /** The host's pool, where it was given one: its options may hold what a client does not tell. */
  readonly pgPool?: unknown;
  /** How long connecting and each statement may take. */
  readonly timeoutMs: number;
  /** The pool stands in; called once for each time the connection is lost. */
  readonly onFallback: (error: Error) => void;
}

/**
 * One connection beside the host's pool, for what must get through when the pool is exhausted. It is made when first
 * used, and again after any failure. The caller asks one thing at a time.
 */
export function makeOwnConnection({ withPgClient, pgPool, timeoutMs, onFallback }: OwnConnectionOptions) {
  let settings: pg.ClientConfig | null | undefined;
  let client: pg.Client | undefined;
  let reported = false;
  let closed = false;

  async function run<T>(callback: (client: Queryable) => Promise<T>): Promise<T> {
    const own = closed ? undefined : await connected();
    if (!own) return withPgClient(callback);
    try {
      return await callback(own);
    } catch (error) {
      discard(own); // a statement that timed out may still be at work in it
      throw error;
    }
  }

  /** Undefined while it cannot be made. */
  async function connected(): Promise<pg.Client | undefined> {
    if (client) return client;
    settings ??= await settingsOf(pgPool, withPgClient);
    if (!settings) return undefined;
    const made = new pg.Client({ ...settings, ...timeouts(timeoutMs) });
    made.on("error", () => discard(made));
    try {
      await made.connect();
      await readCommittedByDefault(made);
      reported = false;
      client = made;
      return made;
    } catch (error) {
      discard(made);
      if (!reported) onFallback(error as Error);
      reported = true;
      return undefined;
    }
  }

  function discard(lost: pg.Client): void {
    if (client === lost) client = undefined;
    lost.end().catch(() => {});
  }

  return {
    run,
    close(): void {
      closed = true;
      if (client) discard(client);
    },
  };
}

export type OwnConnection = ReturnType<typeof makeOwnConnection>;

/**
 * A few connections beside the host's pool, for statements that are large: each backend plans them for itself, which
 * takes ten times as long as running them, and in the host's pool they would meet another backend nearly every time.
 * Connections are made when they are needed; while none is to be had the host's pool stands in.
 */
export function makeOwnPool({ withPgClient, pgPool, timeoutMs, max }: OwnPoolOptions) {
  let pool: pg.Pool | null | undefined;
  let closed = false;
  const backends = new WeakMap<pg.PoolClient, number>();
  const pids = new Set<number>();

  async function run<T>(callback: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = closed ? null : await taken();
    if (!client) return withPgClient(callback);
    try {
      return await callback(client);
    } finally {
      client.release();
    }
  }

  async function taken(): Promise<pg.PoolClient | null> {
    try {
      if (pool === undefined) {
        const settings = await settingsOf(pgPool, withPgClient);
        pool ??= settings && makePool(settings);
      }
      return (await pool?.connect()) ?? null;
    } catch {
      return null; // the host's pool has the word, and its error is heard
    }
  }

  function makePool(settings: pg.ClientConfig): pg.Pool {
    const made = new pg.Pool({
      ...settings,
      max,
      min: 0,
      idleTimeoutMillis: 0,
      maxUses: Number.POSITIVE_INFINITY,
      connectionTimeoutMillis: timeoutMs,
      keepAlive: true,
    });
    made.on("error", () => {}); // a lost connection: its statement says so, and the pool makes another
    made.on("connect", (client) => {
      client.on("error", () => {});
      readCommittedByDefault(client).catch(() => {}); // before the first statement, which says what is wrong
      const { processID } = client as { processID?: number | null };
      if (typeof processID !== "number") return;
      backends.set(client, processID);
      pids.add(processID);
    });
    made.on("remove", (client) => void pids.delete(backends.get(client) ?? 0));
    return made;
  }

  return {
    run,
    /** Whether a backend serves one of these connections. */
    owns: (pid: number): boolean => pids.has(pid),
    close(): void {
      if (closed) return;
      closed = true;
      pool?.end().catch(() => {});
    },
  };
}

/**
 * Runs a callback with a connection beside the host's pool, for what keeps one for long: a pool of one would have none left.
 * Where nobody says where to connect to it is one of the pool's.
 */
export async function withOwnClient<T>(
  { withPgClient, pgPool }: Pick<OwnPoolOptions, "withPgClient" | "pgPool">,
  callback: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const settings = await settingsOf(pgPool, withPgClient);
  if (!settings) return withPgClient((client) => callback(client as unknown as pg.Client));
  const client = new pg.Client({ ...settings, keepAlive: true });
  client.on("error", () => {});
  try {
    await client.connect();
    return await callback(client);
  } finally {
    await client.end().catch(() => {});
  }
}

function timeouts(ms: number): pg.ClientConfig {
  return { connectionTimeoutMillis: ms, query_timeout: ms, keepAlive: true };
}

/** Null where nobody says where to connect to. */
async function settingsOf(pgPool: unknown, withPgClient: WithClient): Promise<pg.ClientConfig | null> {
  return poolSettings(pgPool) ?? (await withPgClient(async (one) => clientSettings(one)));
}

/** With these the pool makes its own clients: also where a password is a function, or a stream is made in a way of one's own. */
function poolSettings(pool: unknown): pg.ClientConfig | null {
  const { options } = (pool ?? {}) as { options?: pg.ClientConfig & { password?: unknown } };
  // pg hides the password from what enumerates
  return options ? { ...options, password: options.password } : null;
}

/** Where a client is connected to; null where it does not say. */
function clientSettings(client: pg.PoolClient): pg.ClientConfig | null {
  const { connectionParameters } = client as unknown as { connectionParameters?: pg.ClientConfig };
  if (!connectionParameters) return null;
  const { user, password, host, port, database, ssl, options, application_name } = connectionParameters;
  const found = { user, password, host, port, database, ssl, options, application_name };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value != null));
}
