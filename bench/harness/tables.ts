import type pg from "pg";

export interface Tables {
  /** MiB of tables and indexes. */
  readonly size: number;
  readonly deadRows: number;
  /** How often autovacuum was there. */
  readonly vacuums: number;
}

/** All tables of these schemas together. */
export async function readTables(pool: pg.Pool, schemas: readonly string[]): Promise<Tables> {
  const { rows } = await pool.query<Tables>(
    `select sum(pg_total_relation_size(relid))::float8 / 2 ^ 20 as size, sum(n_dead_tup)::float8 as "deadRows",
       sum(autovacuum_count)::float8 as vacuums
     from pg_stat_user_tables where schemaname = any($1)`,
    [schemas],
  );
  return rows[0]!;
}
