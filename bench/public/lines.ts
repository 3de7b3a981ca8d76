// The lines that the harness of the public benchmark reads from an adapter's standard output.
import type pg from "pg";
import type { System } from "./system.ts";

/** Its name, its value, and the seconds that the value is of; 0: of the moment. */
export type Metric = readonly [name: string, value: number, windowS: number];

/** @returns how samples of a system and a replica are written */
export function sampleWriter(
  { name }: System,
  instance: number,
): (at: Date, metrics: readonly Metric[]) => void {
  return (at, metrics) => {
    for (const [metric, value, window] of metrics)
      write({
        t: at.toISOString(),
        system: name,
        kind: "adapter",
        subject_kind: "adapter",
        subject: "",
        metric,
        value,
        window_s: window,
        instance_id: instance,
      });
  };
}

/** Says what runs, and which tables the harness shall watch. */
export async function writeDescriptor(system: System, instance: number, db: pg.Pool): Promise<void> {
  const { rows } = await db.query<{ tables: string[]; database: string; migrations: string }>(
    `select current_database() as database, (select max(id) from graphile_worker.migrations)::text as migrations,
       array(select schemaname || '.' || relname from pg_stat_user_tables where schemaname = any($1)
         order by relname in ('staged_jobs', '_private_jobs') desc, array_position($1, schemaname::text), relname) as tables`,
    [system.schemas],
  );
  const { tables, database, migrations } = rows[0]!;
  write({
    kind: "descriptor",
    system: system.name,
    event_tables: tables, // the harness's readers scan the first one, so a table that jobs wait in comes first
    extensions: [],
    version: system.version,
    schema_version: migrations,
    db_name: database,
    started_at: new Date().toISOString(),
    instance_id: instance,
  });
}

function write(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
