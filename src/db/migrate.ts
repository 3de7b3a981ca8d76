import { createHash } from "node:crypto";
import type { ClientBase } from "pg";
import pg from "pg";
import { ArgumentError, SchemaVersionError } from "../errors.ts";
import { inTransaction } from "./isolation.ts";
import { isLockTimeout } from "./outage.ts";
import { rethrowPlainly } from "./rethrow-plainly.ts";
import { internalOf, type Schemas } from "./schemas.ts";
import {
  describedIn,
  functions,
  migrationNumber,
  packageVersion,
  type SqlFile,
  sqlFiles,
  views,
  withSchemas,
} from "./sql-files.ts";
import type { Queryable } from "./statements.ts";

interface State {
  /** The last migration. 0 if there is none. */
  readonly migration: number;
  readonly hash: string | null;
  readonly version: readonly number[];
}

/**
 * Brings the schema up to date: applies missing migrations, then all functions, views and comments if one differs. It uses one
 * transaction that locks the table of migrations, so several processes may start at once. Graphile Worker's own schema must
 * exist.
 *
 * Functions of a later release stay: in a rolling upgrade, an old process that restarts must not bring its own back.
 *
 * @throws {SchemaVersionError} if a newer version of this package has migrated the database
 * @throws {MissingGrantError} if the connected role may not do it
 * @throws {ArgumentError} if the schema serves another of Graphile Worker's schemas
 */
export async function migrate(
  client: ClientBase,
  names: { workerSchema: string; schema: string },
): Promise<void> {
  try {
    await bringUpToDate(client, names);
  } catch (error) {
    if (error instanceof MadeMeanwhile) return migrate(client, names);
    rethrowPlainly(error, names.schema, client);
  }
}

async function bringUpToDate(
  client: ClientBase,
  names: { workerSchema: string; schema: string },
): Promise<void> {
  const schemas: Schemas = { worker: names.workerSchema, own: names.schema };
  const migrations = sqlFiles("migrations");
  const routines = [...functions(), ...views()];
  const comments = sqlFiles("comments");
  const hash = hashOf([...routines, ...comments], schemas);
  const latest = migrationNumber(migrations.at(-1) as SqlFile);
  const known = await readState(client, schemas);
  if (known && known.hash !== hash) await checkWorkerSchema(client, schemas);
  if (known?.migration === latest && !isOutdated(known, hash)) return;
  await inTransaction(client, async () => {
    // names in views, defaults and checks are resolved now, and must not find anybody else's function or operator
    await client.query("set local search_path = pg_catalog, pg_temp");
    await bootstrap(client, schemas);
    await applyMigrations(client, schemas, migrations);
    const state = await readState(client, schemas);
    if (!state || !isOutdated(state, hash)) return;
    await checkWorkerSchema(client, schemas);
    await applyRoutines(client, schemas, routines, hash);
    await describeRoutines(client, schemas, routines);
    await applyComments(client, schemas, comments);
  });
}

/** What is in the database, beside what this package brings. */
export interface SchemaState {
  /** The last migration that was applied. Null: the schema is not there. */
  readonly found: number | null;
  /** The last migration of this package. */
  readonly expected: number;
  /** Whether its functions and views are those of this package, or of an older or newer release. */
  readonly routines: "same" | "older" | "newer";
  /** Graphile Worker's schema that it serves. */
  readonly workerSchema: string;
}

/** Compares this package's schema with what is in the database. It only reads. */
export async function schemaState(client: Queryable, schema: string): Promise<SchemaState> {
  const expected = migrationNumber(sqlFiles("migrations").at(-1) as SqlFile);
  const [served] = await servedSchemas(client, schema);
  const schemas: Schemas = { worker: served ?? "graphile_worker", own: schema };
  const state = await readState(client, schemas);
  const hash = hashOf([...functions(), ...views(), ...sqlFiles("comments")], schemas);
  return {
    found: state?.migration ?? null,
    expected,
    routines: !state || state.hash === hash ? "same" : isOutdated(state, hash) ? "older" : "newer",
    workerSchema: schemas.worker,
  };
}

const migrationsOf = ({ own }: Schemas) => `${pg.escapeIdentifier(internalOf(own))}.migrations`;

/** Null if this package's schema does not exist yet. */
async function readState(client: Queryable, schemas: Schemas): Promise<State | null> {
  const table = migrationsOf(schemas);
  const { rows } = await client.query("select pg_catalog.to_regclass($1) is not null as there", [table]);
  if (!rows[0].there) return null;
  const { rows: last } = await client.query(
    `select id, routines_hash as hash, routines_version as version from ${table} order by id desc limit 1`,
  );
  return { migration: last[0]?.id ?? 0, hash: last[0]?.hash ?? null, version: last[0]?.version ?? [] };
}

/**
 * The functions are made for one schema of Graphile Worker. If they were made again for another, the first one's jobs would
 * go to the other. The type of a parameter shows which one it is.
 */
async function checkWorkerSchema(client: ClientBase, schemas: Schemas): Promise<void> {
  const served = await servedSchemas(client, schemas.own);
  if (served.length === 0 || served.includes(schemas.worker)) return;
  throw new ArgumentError(
    `schema "${schemas.own}" serves Graphile Worker's schema "${served[0]}", got "${schemas.worker}". Give each schema of ` +
      'Graphile Worker its own schema of this package, by the option "schema" of dispatchPolicyPreset, "policySchema" of ' +
      "makePolicyUtils, or DISPATCH_POLICY_SCHEMA",
  );
}

async function servedSchemas(client: Queryable, schema: string): Promise<readonly string[]> {
  const { rows } = await client.query(
    `select n.nspname as name from pg_catalog.pg_proc p
     join pg_catalog.pg_type a on a.oid = p.proargtypes[0]
     join pg_catalog.pg_type e on e.oid = a.typelem
     join pg_catalog.pg_namespace n on n.oid = e.typnamespace
     where p.proname = 'add_jobs' and e.typname = 'job_spec'
       and p.pronamespace = pg_catalog.to_regnamespace($1)`,
    [pg.escapeIdentifier(schema)],
  );
  return rows.map(({ name }) => name as string);
}

/** Whether this process must apply its functions and views: they differ, and are not older. */
function isOutdated({ hash: there, version }: State, hash: string): boolean {
  if (there === hash) return false;
  const own = packageVersion();
  const first = own.findIndex((part, i) => part !== (version[i] ?? 0));
  return first === -1 || (own[first] as number) > (version[first] ?? 0);
}

/** Another session made the schema or its first table at the same time, and has committed it. */
class MadeMeanwhile extends Error {}
const DUPLICATES = new Set<unknown>(["23505", "42P06", "42P07"]);

/**
 * Makes the table of migrations, and locks it until the end of the transaction. Anybody may take an advisory lock, and could
 * block each upgrade with it. Only a role that may write to this table can lock it like this.
 *
 * @throws {MadeMeanwhile} after it has waited for another session that made them: "if not exists" does not look again
 */
async function bootstrap(client: ClientBase, schemas: Schemas): Promise<void> {
  const { rows } = await client.query(
    `select pg_catalog.format('create schema %I;', s.name) as made from pg_catalog.unnest($1::pg_catalog.text[]) s (name)
     where not exists (select from pg_catalog.pg_namespace n where n.nspname = s.name)`,
    [[schemas.own, internalOf(schemas.own)]],
  );
  const made = client.query(
    withSchemas(
      // "if not exists" asks for CREATE on the database also where the schema is there
      `${rows.map((row) => row.made).join("")}
       create table if not exists :DISPATCH_POLICY_INTERNAL.migrations (
         id int primary key, name text not null, at timestamptz not null default now(),
         routines_hash text, routines_version int[]);
       lock table :DISPATCH_POLICY_INTERNAL.migrations in share row exclusive mode;`,
      schemas,
    ),
  );
  await made.catch((error) => {
    throw DUPLICATES.has(error.code) ? new MadeMeanwhile() : error;
  });
}

/** What a file makes goes into the path's first schema. PostgreSQL looks in pg_catalog before. Files may set another path. */
async function apply(client: ClientBase, schemas: Schemas, { text }: SqlFile): Promise<void> {
  await client.query(
    withSchemas(`set local search_path = :DISPATCH_POLICY_INTERNAL, pg_temp;\n${text}`, schemas),
  );
}

async function applyMigrations(
  client: ClientBase,
  schemas: Schemas,
  migrations: readonly SqlFile[],
): Promise<void> {
  const table = migrationsOf(schemas);
  const there = (await readState(client, schemas))?.migration ?? 0;
  const latest = migrationNumber(migrations.at(-1) as SqlFile);
  if (there > latest) {
    throw new SchemaVersionError({ schema: schemas.own, found: there, expected: latest });
  }
  for (const migration of migrations.filter((file) => migrationNumber(file) > there)) {
    await apply(client, schemas, migration);
    await client.query(`insert into ${table} (id, name) values ($1, $2)`, [
      migrationNumber(migration),
      migration.name,
    ]);
  }
}

/** Bodies are not checked on creation, because functions call each other in any order. */
async function applyRoutines(
  client: ClientBase,
  schemas: Schemas,
  routines: readonly SqlFile[],
  hash: string,
): Promise<void> {
  await client.query("set local check_function_bodies = off");
  for (const file of routines) {
    await apply(client, schemas, file);
  }
  const table = migrationsOf(schemas);
  await client.query(
    `update ${table} set routines_hash = $1, routines_version = $2 where id = (select max(id) from ${table})`,
    [hash, packageVersion()],
  );
}

/**
 * Gives functions and views the first paragraph of their files as comments. They are looked up by name, because an
 * overload that somebody added would make the bare name ambiguous, and the start would fail.
 */
async function describeRoutines(
  client: ClientBase,
  schemas: Schemas,
  routines: readonly SqlFile[],
): Promise<void> {
  const { rows } = await client.query(
    `select format('comment on %s %s is %L', d.kind, o.name, d.comment) as statement
     from json_to_recordset($1) d (kind text, name text, comment text)
     cross join lateral (
       select p.oid::regprocedure::text as name, obj_description(p.oid, 'pg_proc') as comment from pg_proc p
       where d.kind = 'routine' and p.proname = d.name and p.pronamespace = any($2::regnamespace[])
       union all
       select c.oid::regclass::text, obj_description(c.oid, 'pg_class') from pg_class c
       where d.kind = 'view' and c.relkind = 'v' and c.relname = d.name and c.relnamespace = any($2::regnamespace[])
     ) o
     where o.comment is distinct from d.comment`,
    [
      JSON.stringify(routines.flatMap(describedIn)),
      [schemas.own, internalOf(schemas.own)].map((name) => pg.escapeIdentifier(name)),
    ],
  );
  await client.query(rows.map(({ statement }) => statement).join(";\n"));
}

const COMMENTS_WAIT = "3s";

/**
 * A comment on a table waits for a vacuum of the table, which may take an hour, and no worker could start meanwhile. So the
 * comments are left as they are if a lock takes longer than an autovacuum takes to give way.
 */
async function applyComments(
  client: ClientBase,
  schemas: Schemas,
  comments: readonly SqlFile[],
): Promise<void> {
  await client.query(`savepoint comments; set local lock_timeout = '${COMMENTS_WAIT}'`);
  try {
    for (const file of comments) await apply(client, schemas, file);
  } catch (error) {
    if (!isLockTimeout(error)) throw error;
    await client.query("rollback to savepoint comments");
  }
}

function hashOf(files: readonly SqlFile[], schemas: Schemas): string {
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file.name}\n${withSchemas(file.text, schemas)}\n`);
  return hash.digest("hex");
}
