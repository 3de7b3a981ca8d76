import { readFileSync } from "node:fs";
import type pg from "pg";
import { median } from "./statistics.ts";

/** What each job used up, beside the time. A figure that cannot be had is not there. */
export interface Usage {
  /** Milliseconds on a processor of the database's backends. */
  readonly serverMs?: number;
  /** The same of the worker's process. */
  readonly workerMs: number;
  readonly walBytes: number;
  /** That clients sent. */
  readonly statements?: number;
}

/** Starts to count; what it returns ends it, and divides by the number of jobs. */
export async function countUsage(client: pg.ClientBase): Promise<(jobs: number) => Promise<Usage>> {
  const before = await readCounters(client);
  return async (jobs) => {
    const after = await readCounters(client);
    let backends = 0;
    for (const [pid, ms] of after.backends) backends += ms - (before.backends.get(pid) ?? 0);
    return {
      ...(Number.isNaN(backends) ? {} : { serverMs: backends / jobs }),
      workerMs: (after.worker - before.worker) / jobs,
      walBytes: (after.wal - before.wal) / jobs,
      ...(after.statements === undefined || before.statements === undefined
        ? {}
        : { statements: (after.statements - before.statements) / jobs }),
    };
  };
}

async function readCounters(client: pg.ClientBase) {
  const { rows } = await client.query<{ pid: number; wal: string }>(
    `select pid, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') as wal from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`,
  );
  const { user, system } = process.cpuUsage();
  return {
    backends: new Map(rows.map(({ pid }) => [pid, onProcessor(pid)])),
    worker: (user + system) / 1000,
    wal: Number(rows[0]?.wal),
    statements: await countStatements(client),
  };
}

async function countStatements(client: pg.ClientBase): Promise<number | undefined> {
  const counts =
    "select from pg_settings where name = 'shared_preload_libraries' and setting ~ 'pg_stat_statements'";
  if ((await client.query(counts)).rowCount === 0) return undefined;
  await client.query("create extension if not exists pg_stat_statements");
  const { rows } = await client.query<{ calls: string | null }>(
    `select sum(calls) as calls from pg_stat_statements
     where dbid = (select oid from pg_database where datname = current_database())`,
  );
  return Number(rows[0]?.calls);
}

/** Of each figure that all have. */
export function medians(usages: readonly Usage[]): Usage {
  const names = Object.keys(usages[0] ?? {}) as (keyof Usage)[];
  return Object.fromEntries(
    names.map((name) => [name, median(usages.map((usage) => usage[name] ?? Number.NaN))]),
  ) as never;
}

/** Milliseconds of a process of this machine; not a number where the server is elsewhere. */
export function onProcessor(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]) / 1e6;
  } catch {
    return Number.NaN;
  }
}
