import { createHash } from "node:crypto";
import type { ClientBase } from "pg";
import pg from "pg";
import { SchemaVersionError } from "../errors.ts";
import { inTransaction } from "./isolation.ts";
import { packageVersion, type Schemas, type SqlFile, sqlFiles, views, withSchemas } from "./sql-files.ts";

interface State {
  /** The last migration; 0 when there is none. */
  readonly migration: number;
  readonly hash: string | null;
  readonly version: readonly number[];
}

/**
 * Brings the schema up to date: migrations that are not there yet, then functions and views where they differ. All in
 * one transaction under an advisory lock, so several processes may start at once. Functions of a later release stay: in a
 * rolling upgrade an old process that restarts must not bring its own back. Graphile Worker's own schema must be there.
 *
 * @throws SchemaVersionError when the database was migrated by a newer version of this package.
 */
export async function migrate(
  client: ClientBase,
  names: { workerSchema: string; schema: string },
): Promise<void> {
  const schemas: Schemas = { worker: names.workerSchema, own: names.schema };
  const migrations = sqlFiles("migrations");
  const routines = [...sqlFiles("functions"), ...views()];
  const hash = hashOf(routines, schemas);
  const latest = numberOf(migrations.at(-1) as SqlFile);
  const known = await readState(client, schemas);
  if (known?.migration === latest && !isOutdated(known, hash)) return;
  await inTransaction(client, async () => {
    // views, defaults and checks are resolved now: nobody else's function or operator may be what they mean
    await client.query("set local search_path = pg_catalog, pg_temp");
    await client.query("select pg_advisory_xact_lock(hashtext($1), 1)", [`${schemas.own}.migrate`]);
    await bootstrap(client, schemas);
    await applyMigrations(client, schemas, migrations);
    const state = await readState(client, schemas);
    if (state && isOutdated(state, hash)) await applyRoutines(client, schemas, routines, hash);
  });
}

/** Null where there is no schema of ours yet. */
async function readState(client: ClientBase, schemas: Schemas): Promise<State | null> {
  const table = `${pg.escapeIdentifier(schemas.own)}._private_migrations`;
  const { rows } = await client.query("select pg_catalog.to_regclass($1) is not null as there", [table]);
  if (!rows[0].there) return null;
  const { rows: last } = await client.query(
    `select id, routines_hash as hash, routines_version as version from ${table} order by id desc limit 1`,
  );
  return { migration: last[0]?.id ?? 0, hash: last[0]?.hash ?? null, version: last[0]?.version ?? [] };
}

/** Whether this package's functions and views are to be put in: they differ, and are not older. */
function isOutdated({ hash: there, version }: State, hash: string): boolean {
  if (there === hash) return false;
  const own = packageVersion();
  const first = own.findIndex((part, i) => part !== (version[i] ?? 0));
  return first === -1 || (own[first] as number) > (version[first] ?? 0);
}

/**
 * A session that waited for an advisory lock still believes what it knew of the catalogue before, "if not exists" with it.
 * It hears what others committed when it locks a relation, as any query does.
 */
async function bootstrap(client: ClientBase, schemas: Schemas): Promise<void> {
  await client.query("select from pg_catalog.pg_namespace limit 0");
  await client.query(
    withSchemas(
      `create schema if not exists :DISPATCH_POLICY_SCHEMA;
       create table if not exists :DISPATCH_POLICY_SCHEMA._private_migrations (
         id int primary key, name text not null, at timestamptz not null default now(),
         routines_hash text, routines_version int[]);`,
      schemas,
    ),
  );
}

async function applyMigrations(
  client: ClientBase,
  schemas: Schemas,
  migrations: readonly SqlFile[],
): Promise<void> {
  const table = `${pg.escapeIdentifier(schemas.own)}._private_migrations`;
  const there = (await readState(client, schemas))?.migration ?? 0;
  const latest = numberOf(migrations.at(-1) as SqlFile);
  if (there > latest) {
    throw new SchemaVersionError({ schema: schemas.own, found: there, expected: latest });
  }
  for (const migration of migrations.filter((file) => numberOf(file) > there)) {
    await client.query(withSchemas(migration.text, schemas));
    await client.query(`insert into ${table} (id, name) values ($1, $2)`, [
      numberOf(migration),
      migration.name,
    ]);
  }
}

/** Bodies are not checked while they are created: they name each other in any order. */
async function applyRoutines(
  client: ClientBase,
  schemas: Schemas,
  routines: readonly SqlFile[],
  hash: string,
): Promise<void> {
  await client.query("set local check_function_bodies = off");
  for (const file of routines) {
    await client.query(withSchemas(file.text, schemas));
  }
  const table = `${pg.escapeIdentifier(schemas.own)}._private_migrations`;
  await client.query(
    `update ${table} set routines_hash = $1, routines_version = $2 where id = (select max(id) from ${table})`,
    [hash, packageVersion()],
  );
}

function numberOf(file: SqlFile): number {
  return Number.parseInt(file.name, 10);
}

function hashOf(files: readonly SqlFile[], schemas: Schemas): string {
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file.name}\n${withSchemas(file.text, schemas)}\n`);
  return hash.digest("hex");
}
