import pg from "pg";

/** A pool in which a lost connection ends no process, also while the pool ends: its next statement reports that. */
export function quietPool(config: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool(config);
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}
