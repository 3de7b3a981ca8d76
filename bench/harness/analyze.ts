import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";

/** A worker with a local queue fetches many at once, and its table holds as many. */
export const MANY = { tuned: 100, default: 20 };

export interface Analyzing {
  /** Whose tables they are, for a warning. */
  readonly who: string;
  /** So many jobs are to be in Graphile Worker's table when it is counted. */
  readonly many: number;
  hasTime(): boolean | Promise<boolean>;
}

/**
 * As autovacuum does, at a moment when Graphile Worker's table holds jobs, and is counted so: see docs/benchmarks.md.
 * By the time a table is counted its jobs may have run. On a slow machine that may be so each time, and a run of few
 * jobs would be over: it says so, and is timed with the plan it has.
 */
export async function analyzeFilled(
  client: Pick<pg.Client, "query">,
  { who, many, hasTime }: Analyzing,
): Promise<void> {
  await client.query("analyze");
  const counted =
    "select reltuples >= $1 as many from pg_class where oid = 'graphile_worker._private_jobs'::regclass";
  const isCounted = async () => (await client.query<{ many: boolean }>(counted, [many])).rows[0]?.many;
  while (!(await isCounted())) {
    if (!(await hasTime())) {
      console.error(`# ${who}: analyzed when Graphile Worker's table held fewer than ${many} jobs`);
      return;
    }
    await delay(2);
    await client.query("analyze graphile_worker._private_jobs");
  }
}
