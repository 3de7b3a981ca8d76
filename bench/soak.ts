// npm run bench -- --soak: half an hour at a part of what --limits finds, while partitions come and go. What is to stay
// flat: latency, the size of the tables, dead rows, memory.
import type pg from "pg";
import { type Heard, openLoad } from "./load.ts";

export interface SoakSize {
  readonly minutes: number;
  readonly secondsPerMinute: number;
  readonly tenants: number;
  /** Of the knee. */
  readonly part: number;
}

export interface Minute extends Heard {
  /** MiB of tables and indexes. */
  readonly tables: number;
  readonly deadRows: number;
}

export async function measureSoak(knee: number, size: SoakSize): Promise<readonly Minute[]> {
  const load = await openLoad("governed");
  const minutes: Minute[] = [];
  for (let n = 0; n < size.minutes; n++) {
    const heard = await load.run({
      rate: knee * size.part,
      seconds: size.secondsPerMinute,
      tenants: size.tenants,
    });
    minutes.push({ ...heard, ...(await readTables(load.pool)) });
  }
  await load.drained();
  await load.close();
  return minutes;
}

async function readTables(pool: pg.Pool): Promise<{ tables: number; deadRows: number }> {
  const { rows } = await pool.query<{ tables: number; dead: number }>(
    `select sum(pg_total_relation_size(relid))::float8 / 2 ^ 20 as tables, sum(n_dead_tup)::float8 as dead
     from pg_stat_user_tables where schemaname in ('dispatch_policy', 'graphile_worker')`,
  );
  return { tables: rows[0]?.tables ?? Number.NaN, deadRows: rows[0]?.dead ?? Number.NaN };
}
