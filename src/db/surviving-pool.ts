import type pg from "pg";
import { quietPool } from "./quiet-pool.ts";

/** A statement of Graphile Worker takes milliseconds, and waits for locks of others for moments. */
const ANSWER_WITHIN_MS = 20_000;
const CONNECT_WITHIN_MS = 5000;
/** For an error with this code, Graphile Worker records the end of a job again. */
const REPEATED = "ETIMEDOUT";

/**
 * A pool to hand to Graphile Worker, with which workers outlive the end of their database server and a failover.
 *
 * Graphile Worker records that a job has ended once more only after errors with some codes. After others, such as a reset
 * connection, its worker ends, and mostly the process. And it waits without bound for the answer of a host that is gone. With this
 * pool, errors of lost connections have such a code; a statement without an answer within 20 seconds fails, and its connection
 * ends; connecting takes 5 seconds at most; and idle connections are kept alive.
 *
 * Tasks that run longer statements should do so in a pool of their own, or set `query_timeout`, in milliseconds.
 *
 * @param config as for `pg.Pool`; what it says goes first
 * @example
 * const pgPool = survivingPool({ connectionString: process.env.DATABASE_URL, max: 12 });
 * console.log(pgPool.options.max); // then `run({ preset, pgPool })`
 */
export function survivingPool(config: pg.PoolConfig = {}): pg.Pool {
  const pool = quietPool({
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_WITHIN_MS,
    query_timeout: ANSWER_WITHIN_MS,
    ...config,
  });
  pool.on("connect", (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    client.query = ((...args: unknown[]) => {
      const answer = query(...args);
      return isPromise(answer) ? answer.catch((error) => fail(error, pool, client)) : answer;
    }) as never;
  });
  const connect = pool.connect.bind(pool) as (callback?: unknown) => unknown;
  pool.connect = ((callback?: unknown) => {
    const client = connect(callback);
    return isPromise(client) ? client.catch((error) => fail(error, pool)) : client;
  }) as never;
  return pool;
}

/** Tells this package's preset that an answer was lost. */
export const LOST_ANSWER = "dispatchPolicy:lostAnswer";

function fail(error: Error & { code?: string }, pool: pg.Pool, client?: pg.PoolClient): never {
  // pg would lend the connection again while the statement still waits there
  if (error.message === "Query read timeout") void client?.end().catch(() => {});
  if (isLost(error)) {
    pool.emit(LOST_ANSWER as never);
    error.code = REPEATED;
  }
  throw error;
}

/** Node's errors of a socket, or of a name that is not found. */
const OF_SOCKETS = /^(E(CONN|HOST|NET|TIMEDOUT|PIPE)|ENOTFOUND|EAI_)/;
/** pg's own, which have no code, and the server's as it ends or is a standby yet. */
const OF_PG =
  /^(Connection terminated|Client (was closed|has encountered)|timeout exceeded|Query read timeout)/;
const OF_SERVERS = /^(08|25006|57P)/;

function isLost({ code = "", message }: { code?: string; message: string }): boolean {
  return OF_SOCKETS.test(code) || OF_SERVERS.test(code) || (code === "" && OF_PG.test(message));
}

function isPromise(value: unknown): value is Promise<never> {
  return typeof (value as Promise<never> | undefined)?.then === "function";
}
