import type { Duplex } from "node:stream";
import pg from "pg";
import { quietPool } from "./quiet-pool.ts";

export type { Pool } from "pg";

/** As many as pg's own default. */
const MOST_CONNECTIONS = 10;

/**
 * A pool whose connections are streams that `stream` makes, instead of sockets, and share one session. This package's own
 * connections take the pool's options, so they use such streams as well.
 */
export function makeStreamPool(stream: () => Duplex): pg.Pool {
  // Graphile Worker warns about a pool without its handlers
  return quietPool({
    stream,
    Client: UnpreparedClient,
    max: MOST_CONNECTIONS,
    ssl: false, // or PGSSLMODE in the environment might ask for it
    idleTimeoutMillis: 0, // an idle stream costs nothing, and a timer would keep the process alive
  });
}

/**
 * Connections may give different statements the same name, but a session knows each name once: the second one to prepare it
 * would fail. So statements lose their names here, and none is prepared.
 */
class UnpreparedClient extends pg.Client {
  override query(...[config, ...rest]: unknown[]): never {
    return super.query(withoutName(config) as string, ...(rest as [])) as never;
  }
}

/** A query that submits itself, such as a cursor, stays as it is. */
function withoutName(config: unknown): unknown {
  const isNamed = typeof config === "object" && config !== null && "name" in config && !("submit" in config);
  return isNamed ? { ...config, name: undefined } : config;
}
