import { createHash, randomBytes } from "node:crypto";
import { existsSync, globSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Logger, runMigrations } from "graphile-worker";
import pg from "pg";

export interface TestDatabase {
  readonly url: string;
  readonly pool: pg.Pool;
  /** Ends the pool and removes the database, whoever is still connected to it. */
  drop(): Promise<void>;
}

export interface TestDatabaseOptions {
  /** False: an empty database, for tests of the migrations themselves. */
  readonly migrated?: boolean;
}

/**
 * A database of one's own, with Graphile Worker's schema and ours. Given a test's `t`, it is dropped when the
 * test ends; in `test.before` call `drop` in `test.after.always`.
 *
 * Isolation is by database, never by schema: Graphile Worker's notifications carry no schema, and migrating a
 * second schema shuts down every running worker of that database.
 */
export async function testDatabase(
  t?: { teardown(drop: () => Promise<void>): void },
  { migrated = true }: TestDatabaseOptions = {},
): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString("hex")}`;
  const template = migrated ? await currentTemplate() : "template0";
  await admins().query(`create database ${name} template ${template} ${await byFileCopy()}`);

  const url = urlOf(name);
  const pool = quietPool(url);
  const drop = async () => {
    await pool.end();
    await leave(name);
    await admins().query(`drop database if exists ${name} with (force)`);
  };
  t?.teardown(drop);
  return { url, pool, drop };
}

let adminPool: pg.Pool | undefined;

/**
 * Connections for making and dropping databases. Three of them took 60 ms a database where one took 146, with others at work on
 * two processors. An idle one keeps no test process from ending.
 */
function admins(): pg.Pool {
  adminPool ??= quietPool(baseUrl(), { max: 3, allowExitOnIdle: true });
  return adminPool;
}

let isByFileCopy: Promise<string> | undefined;

/** Twice as fast as by the write-ahead log, without fsync. PostgreSQL 14 knows no other way, and no word for it. */
function byFileCopy(): Promise<string> {
  isByFileCopy ??= admins()
    .query<{ version: number }>("select current_setting('server_version_num')::int as version")
    .then(({ rows }) => (rows[0]!.version >= 150_000 ? "strategy file_copy" : ""));
  return isByFileCopy;
}

const LEAVE_MS = 2000;

/** Graphile Worker does not wait for the end of a pool of its own, and to be cut off then is an error nobody hears. */
async function leave(database: string): Promise<void> {
  const end = performance.now() + LEAVE_MS;
  const connected = "select from pg_stat_activity where datname = $1";
  while (performance.now() < end && (await admins().query(connected, [database])).rowCount !== 0)
    await delay(5);
}

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TEMPLATES = "dispatch_policy_template_";

let template: Promise<string> | undefined;

/** The name of the template that belongs to the sources as they are now, made if nobody has yet. */
function currentTemplate(): Promise<string> {
  template ??= findTemplate();
  return template;
}

/**
 * Nobody is connected to a template that has its name: PostgreSQL refuses to clone one in use. The lock goes with its connection,
 * so a killed test does not keep it.
 */
async function findTemplate(): Promise<string> {
  const name = TEMPLATES + sourcesHash();
  const admin = new pg.Client({ connectionString: baseUrl() });
  await admin.connect();
  try {
    await admin.query("select pg_advisory_lock(hashtext('dispatch_policy test databases'))");
    await makeTemplate(admin, name);
  } finally {
    await admin.end();
  }
  return name;
}

async function makeTemplate(admin: pg.Client, name: string): Promise<void> {
  const { rows } = await admin.query<{ datname: string }>(
    "select datname from pg_database where starts_with(datname, $1)",
    [TEMPLATES],
  );
  if (rows.some(({ datname }) => datname === name)) return;

  // Of other sources, or left half-made by a run that was killed.
  for (const { datname } of rows) await admin.query(`drop database if exists ${datname} with (force)`);
  const unfinished = `${TEMPLATES}unfinished`;
  await admin.query(`create database ${unfinished} template template0`);
  await migrateAll(urlOf(unfinished));
  await admin.query(`alter database ${unfinished} rename to ${name}`);
}

let hashOfSources: string | undefined;

/** Read once: sources do not change while tests run. */
function sourcesHash(): string {
  hashOfSources ??= readSourcesHash();
  return hashOfSources;
}

function readSourcesHash(): string {
  const hash = createHash("sha256");
  const files = ["package-lock.json", ...globSync("{sql/**/*.sql,src/db/**/*.ts}", { cwd: ROOT }).sort()];
  for (const file of files)
    hash
      .update(file)
      .update("\0")
      .update(readFileSync(ROOT + file))
      .update("\0");
  return hash.digest("hex").slice(0, 16);
}

async function migrateAll(url: string): Promise<void> {
  const pool = quietPool(url);
  try {
    await runMigrations({ pgPool: pool, logger: new Logger(() => () => {}) });
    const client = await pool.connect();
    try {
      await migrateOurs(client);
    } finally {
      client.release();
    }
  } finally {
    await pool.end();
  }
}

type Migrate = (client: pg.PoolClient, schemas: { workerSchema: string; schema: string }) => Promise<unknown>;

async function migrateOurs(client: pg.PoolClient): Promise<void> {
  const file = new URL("src/db/migrate.ts", `file://${ROOT}`);
  if (!existsSync(file)) throw new Error("No migrated test database: src/db/migrate.ts is missing.");
  const { migrate } = (await import(file.href)) as { migrate: Migrate };
  await migrate(client, { workerSchema: "graphile_worker", schema: "dispatch_policy" });
}

/** A pool that outlives its connections being cut, as dropping a database and crash tests do. */
export function quietPool(url: string, options: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 10, ...options });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}

function urlOf(database: string): string {
  const url = new URL(baseUrl());
  url.pathname = `/${database}`;
  return url.href;
}

function baseUrl(): string {
  const url = process.env.DATABASE_URL;
  if (!url)
    throw new Error("DATABASE_URL is not set: run tests by npm test, or node scripts/postgres.ts -- …");
  return url;
}
