import pg from "pg";
import { type HostConnections, settingsOf } from "./connection-settings.ts";
import { readCommittedByDefault } from "./isolation.ts";

export interface OwnPoolOptions extends HostConnections {
  /** The most connections. */
  readonly max: number;
  /** How long connecting may take. */
  readonly timeoutMs: number;
}

/**
 * A few connections beside the host's pool, for large statements. Each backend plans them for itself, which takes ten
 * times as long as running them. In the host's pool nearly every statement would meet another backend.
 *
 * Connections are made when they are needed. While none can be made, the host's pool is used.
 */
export function makeOwnPool({ max, timeoutMs, ...host }: OwnPoolOptions) {
  let pool: pg.Pool | null | undefined;
  let closed = false;
  const pids = new Set<number>();

  async function run<T>(callback: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = closed ? null : await connected();
    if (!client) return host.withPgClient(callback);
    try {
      return await callback(client);
    } finally {
      client.release();
    }
  }

  async function connected(): Promise<pg.PoolClient | null> {
    try {
      if (pool === undefined) {
        const settings = await settingsOf(host);
        pool ??= settings && makePool({ ...settings, max, connectionTimeoutMillis: timeoutMs }, pids);
      }
      return (await pool?.connect()) ?? null;
    } catch {
      return null; // the host's pool is tried next, and reports its own error
    }
  }

  return {
    run,
    /** Whether the backend with this process id serves one of these connections. */
    owns: (pid: number): boolean => pids.has(pid),
    close(): void {
      if (closed) return;
      closed = true;
      pool?.end().catch(() => {}); // whoever closes it waits for nothing
    },
  };
}

export type OwnPool = ReturnType<typeof makeOwnPool>;

/** A pool that keeps its connections, and keeps the process ids of their backends in `pids`. */
function makePool(settings: pg.PoolConfig, pids: Set<number>): pg.Pool {
  const backends = new WeakMap<pg.PoolClient, number>();
  const pool = new pg.Pool({
    ...settings,
    min: 0,
    idleTimeoutMillis: 0,
    maxUses: Number.POSITIVE_INFINITY,
    keepAlive: true,
  });
  pool.on("error", () => {}); // a lost connection: its statement reports that, and the pool makes another
  pool.on("connect", (client) => {
    client.on("error", () => {});
    readCommittedByDefault(client).catch(() => {}); // it runs before the first statement, which reports what is wrong
    const { processID } = client as { processID?: number | null };
    if (typeof processID !== "number") return;
    backends.set(client, processID);
    pids.add(processID);
  });
  pool.on("remove", (client) => void pids.delete(backends.get(client) ?? 0));
  return pool;
}
