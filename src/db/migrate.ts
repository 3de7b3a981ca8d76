import { createHash } from "node:crypto";
import type { ClientBase } from "pg";
import pg from "pg";
import { SchemaVersionError } from "../errors.ts";
import { type Schemas, type SqlFile, sqlFiles, withSchemas } from "./sql-files.ts";

/**
 * Brings the schema up to date: migrations that are not there yet, then functions and views where they differ. All in
 * one transaction under an advisory lock, so several processes may start at once. Graphile Worker's own schema must be
 * there.
 *
 * @throws SchemaVersionError when the database was migrated by a newer version of this package.
 */
export async function migrate(
  client: ClientBase,
  names: { workerSchema: string; schema: string },
): Promise<void> {
  const schemas: Schemas = { worker: names.workerSchema, own: names.schema };
  const migrations = sqlFiles("migrations");
  const routines = [...sqlFiles("functions"), ...sqlFiles("views")];
  const hash = hashOf(routines, schemas);
  if (await isCurrent(client, schemas, numberOf(migrations.at(-1) as SqlFile), hash)) return;
  await client.query("begin");
  try {
    await client.query("select pg_advisory_xact_lock(hashtext($1), 1)", [`${schemas.own}.migrate`]);
    await bootstrap(client, schemas);
    await applyMigrations(client, schemas, migrations);
    await applyRoutines(client, schemas, routines, hash);
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  }
}

async function isCurrent(
  client: ClientBase,
  schemas: Schemas,
  latest: number,
  hash: string,
): Promise<boolean> {
  const table = `${pg.escapeIdentifier(schemas.own)}._private_migrations`;
  const { rows } = await client.query("select to_regclass($1) is not null as there", [table]);
  if (!rows[0].there) return false;
  const { rows: last } = await client.query(
    `select id, routines_hash from ${table} order by id desc limit 1`,
  );
  return last[0]?.id === latest && last[0]?.routines_hash === hash;
}

async function bootstrap(client: ClientBase, schemas: Schemas): Promise<void> {
  await client.query(
    withSchemas(
      `create schema if not exists :DISPATCH_POLICY_SCHEMA;
       create table if not exists :DISPATCH_POLICY_SCHEMA._private_migrations (
         id int primary key, name text not null, at timestamptz not null default now(), routines_hash text);`,
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
  const { rows } = await client.query(`select coalesce(max(id), 0) as id from ${table}`);
  const there: number = rows[0].id;
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
  await client.query(`update ${table} set routines_hash = $1 where id = (select max(id) from ${table})`, [
    hash,
  ]);
}

function numberOf(file: SqlFile): number {
  return Number.parseInt(file.name, 10);
}

function hashOf(files: readonly SqlFile[], schemas: Schemas): string {
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file.name}\n${withSchemas(file.text, schemas)}\n`);
  return hash.digest("hex");
}
