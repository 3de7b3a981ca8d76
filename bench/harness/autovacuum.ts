import type { Pool } from "pg";

/**
 * Vacuums and analyzes no table by itself: when it happens decides plans, and would be chance. An analyze that meets
 * Graphile Worker's table empty makes its fetch thirty times slower until the next: see docs/benchmarks.md.
 */
export async function stopAutovacuum(pool: Pool): Promise<void> {
  const tables = `select format('alter table %I.%I set (autovacuum_enabled = off)', schemaname, tablename) as text
    from pg_tables where schemaname in ('dispatch_policy_internal', 'graphile_worker')`;
  for (const { text } of (await pool.query<{ text: string }>(tables)).rows) await pool.query(text);
}
