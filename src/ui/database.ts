import type { WithPgClient } from "graphile-worker";
import type { Pool } from "../db/stream-pool.ts";
import { makeContext, type OperateContext } from "../operate/call.ts";

/** How the pages reach the database. */
export interface Database {
  /** For what only looks: each callback has a transaction of its own that cannot write. */
  readonly looking: OperateContext;
  /** For verbs, and for what begins a transaction of its own. */
  readonly acting: OperateContext;
}

export function makeDatabase(pool: Pool, schema: string): Database {
  const withClient = (async (callback) => {
    const client = await pool.connect();
    try {
      return await callback(client);
    } finally {
      client.release();
    }
  }) as WithPgClient;
  const looking = ((callback) =>
    withClient(async (client) => {
      await client.query("begin transaction read only");
      try {
        return await callback(client);
      } finally {
        await client.query("rollback").catch(() => {}); // a lost connection: the callback's statement reported that
      }
    })) as WithPgClient;
  return { looking: makeContext(schema, looking), acting: makeContext(schema, withClient) };
}
