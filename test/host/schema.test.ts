import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import test from "ava";
import { runMigrations } from "graphile-worker";
import pg from "pg";
import { migrate } from "../../src/db/migrate.ts";
import {
  ArgumentError,
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  makePolicyUtils,
  SchemaVersionError,
} from "../../src/index.ts";
import { runDueJobs } from "../../src/testing.ts";
import { testDatabase } from "../helpers/database.ts";
import { greet } from "../helpers/policies.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";

const names = { workerSchema: "graphile_worker", schema: "dispatch_policy" };
const run = promisify(execFile);

/** Who put the functions in. */
const OLDER = { routines_hash: "of an older release", routines_version: [0, 0, 1] };
const LATER = { routines_hash: "of a later release", routines_version: [999, 0, 0] };

async function waitsFor(pool: pg.Pool, waiting: pg.ClientBase, locking: pg.ClientBase): Promise<void> {
  const [pid, by] = [waiting, locking].map((client) => (client as { processID?: number }).processID);
  await until("the second waits for the first", async () => {
    const { rows } = await pool.query("select pg_blocking_pids($1) @> array[$2::int] as waits", [pid, by]);
    return rows[0].waits;
  });
}

/** Everything the catalogue knows of a schema, in a form that can be compared. */
async function describeSchema(client: pg.ClientBase | pg.Pool, schema: string): Promise<string[]> {
  const { rows } = await client.query(
    `select 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' '
        || coalesce(column_default, generation_expression, '') as line
      from information_schema.columns where table_schema = any($1)
     union all select 'index ' || indexdef from pg_indexes where schemaname = any($1)
     union all select 'check ' || conrelid::regclass || ' ' || pg_get_constraintdef(oid) from pg_constraint
      where connamespace::regnamespace::text = any($1)
     union all select 'function ' || pg_get_functiondef(p.oid) from pg_proc p
      where p.pronamespace::regnamespace::text = any($1) and p.prokind = 'f'
     union all select 'view ' || viewname || ' ' || definition from pg_views where schemaname = any($1)
     union all select 'storage ' || relname || ' ' || reloptions::text from pg_class
      where relnamespace::regnamespace::text = any($1) and reloptions is not null
     order by 1`,
    [[schema, `${schema}_internal`]],
  );
  return rows.map((row) => row.line);
}

test("a fresh database equals one whose functions and views were older", async (t) => {
  const fresh = await testDatabase(t);
  const upgraded = await testDatabase(t);
  const client = await upgraded.pool.connect();
  t.teardown(() => client.release());
  await table(client, "migrations").set(OLDER);
  await client.query(`create or replace function dispatch_policy_internal._breadth(scope text) returns smallint language sql as 'select 0::smallint';
    create or replace function dispatch_policy_internal._lets_through(tokens float8, capacity float8, cost float8) returns boolean
      language sql as 'select true';`);
  await migrate(client, names);
  t.deepEqual(
    await describeSchema(upgraded.pool, "dispatch_policy"),
    await describeSchema(fresh.pool, "dispatch_policy"),
  );
});

test("migrating again changes nothing and takes no lock", async (t) => {
  const { pool } = await testDatabase(t);
  const other = await pool.connect();
  const client = await pool.connect();
  t.teardown(() => {
    other.release();
    client.release();
  });
  await other.query(`begin; lock table ${nameOf("migrations")} in share row exclusive mode`);
  await migrate(client, names);
  await other.query("rollback");
  t.pass();
});

test("several processes may start at once on an empty database", async (t) => {
  const { url } = await testDatabase(t, { migrated: false });
  const all = await Promise.all(
    Array.from({ length: 4 }, () =>
      makePolicyUtils({ connectionString: url, policies: [greet], logger: silent }),
    ),
  );
  const [status] = await Promise.all(all.map((utils) => utils.status()));
  t.is(status?.policies.length, 1);
  await Promise.all(all.map((utils) => utils.release()));
});

test("a session that waited while another one created the schema sees that it is there", async (t) => {
  const { url, pool } = await testDatabase(t, { migrated: false });
  const [first, second] = [await pool.connect(), await pool.connect()];
  t.teardown(() => {
    first.release();
    second.release();
  });
  // as whoever ran Graphile Worker's migrations: later DDL of that session locks nothing before it looks for the schema
  await runMigrations({ connectionString: url });
  await second.query("create temporary table ddl ()");
  await first.query("begin; create schema dispatch_policy");
  const waiting = migrate(second, names);
  await waitsFor(pool, second, first);
  await first.query("commit");
  await t.notThrowsAsync(waiting);
});

test("of two processes that upgrade at once, the second waits for the first", async (t) => {
  const { pool } = await testDatabase(t);
  const [first, second] = [await pool.connect(), await pool.connect()];
  t.teardown(() => {
    first.release();
    second.release();
  });
  await table(first, "migrations").set(OLDER);
  await first.query(`begin; lock table ${nameOf("migrations")} in share row exclusive mode`);
  const waiting = migrate(second, names);
  await waitsFor(pool, second, first);
  await first.query("commit");
  await t.notThrowsAsync(waiting);
  t.not((await table(pool, "migrations").one()).routines_hash, OLDER.routines_hash);
});

for (const schema of ["Upper Case", `with "quotes"`, "it's", "dollar$1"]) {
  test(`works in schemas named ${schema}`, async (t) => {
    const { url, pool } = await testDatabase(t, { migrated: false });
    const worker = `${schema} worker`;
    const utils = await makePolicyUtils({
      connectionString: url,
      schema: worker,
      policySchema: schema,
      policies: [greet],
      logger: silent,
    });
    t.teardown(() => utils.release());
    await utils.addJob(greet, { name: "Ana" });
    const { rows } = await pool.query(
      `select * from ${pg.escapeIdentifier(schema)}.add_job('greet', '{"name": "Bo"}')`,
    );
    t.is(rows[0].partition, "Bo");
    t.is((await utils.tick({ policy: "greet" })).admitted, 2);
    const jobs = await pool.query(`select * from ${pg.escapeIdentifier(worker)}.jobs`);
    t.is(jobs.rows.length, 2);
    t.deepEqual(await utils.pause({ policy: "greet", partition: "Ana" }), {
      matched: 1,
      changed: 1,
      stored: false,
    });
    const { repaired } = await utils.sweep();
    t.deepEqual(new Set(Object.values(repaired)), new Set([0]));
  });
}

test("every table has a primary key, so that a publication may have all tables", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows } = await pool.query(
    `select relname from pg_class c where relnamespace = 'dispatch_policy_internal'::regnamespace and relkind in ('r', 'p')
       and not exists (select from pg_index where indrelid = c.oid and indisprimary)`,
  );
  t.deepEqual(rows, []);
});

test("under a publication for all tables backlogs, drops, histories and groups go on", async (t) => {
  const { pool } = await testDatabase(t);
  const bounded = definePolicy("bounded", { partitionBy: "key", maxPending: { policy: 1000 } });
  const skipping = definePolicy("skipping", {
    partitionBy: "key",
    whenBusy: "skip",
    gates: [concurrency({ max: 1 })],
  });
  const kept = definePolicy("kept", { partitionBy: "key", history: { keep: "1 hour" } });
  const policies = [bounded, skipping, kept];
  const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  t.teardown(() => utils.release());
  await pool.query("create publication everything for all tables");
  const payload = { key: "a" };
  for (let i = 0; i < 12; i++) await addPolicyJob(pool, bounded, payload); // ten changes of the count are added up
  await addPolicyJobs(
    pool,
    [1, 2].map(() => ({ policy: skipping, payload })),
  );
  await addPolicyJobs(pool, [{ policy: kept, payload }], { then: { policy: kept, payload: { key: "end" } } });
  await utils.pause({ policy: "kept", partition: "a" });
  await utils.resume({ policy: "kept", partition: "a" });
  const taskList = Object.fromEntries(policies.map(({ identifier }) => [identifier, async () => {}]));
  const tasks = (await runDueJobs({ pgPool: pool, policies, taskList })).map(({ task }) => task);
  await utils.sweep();
  t.deepEqual(
    policies.map(({ identifier }) => tasks.filter((task) => task === identifier).length),
    [12, 1, 2],
  );
});

test("refuses politely when the database is newer, and changes nothing", async (t) => {
  const { url, pool } = await testDatabase(t);
  await table(pool, "migrations").add({ id: 999, name: "000999_later.sql" });
  const before = await describeSchema(pool, "dispatch_policy");
  const error = await t.throwsAsync(
    makePolicyUtils({ connectionString: url, policies: [], logger: silent }),
    {
      instanceOf: SchemaVersionError,
    },
  );
  t.regex(error?.message ?? "", /is at migration 999.*upgrade graphile-worker-dispatch-policy/);
  t.deepEqual(await describeSchema(pool, "dispatch_policy"), before);
});

test("which release put the functions in is written with them", async (t) => {
  const { pool } = await testDatabase(t);
  const last = (await table(pool, "migrations").all({}, "id")).at(-1);
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  t.is(last.routines_version.join("."), version);
});

test("functions of a later release are left alone by an older process", async (t) => {
  const { pool } = await testDatabase(t);
  const client = await pool.connect();
  t.teardown(() => client.release());
  await table(client, "migrations").set(LATER);
  await client.query(
    "create or replace function dispatch_policy_internal._breadth(scope text) returns smallint language sql as 'select 7::smallint'",
  );
  await migrate(client, names);
  const { rows } = await client.query("select dispatch_policy_internal._breadth('policy') as breadth");
  t.is(rows[0].breadth, 7);
});

test("a second schema of Graphile Worker needs a second one of this package, and changes nothing without", async (t) => {
  const { url, pool } = await testDatabase(t);
  const options = { connectionString: url, policies: [greet], logger: silent };
  const before = await describeSchema(pool, "dispatch_policy");
  for (const hash of ["as it is", "of a later release"]) {
    if (hash !== "as it is") await table(pool, "migrations").set(LATER);
    await t.throwsAsync(makePolicyUtils({ ...options, schema: "second_worker" }), {
      instanceOf: ArgumentError,
      message:
        'schema "dispatch_policy" serves Graphile Worker\'s schema "graphile_worker", got "second_worker". Give each schema ' +
        'of Graphile Worker its own schema of this package, by the option "schema" of dispatchPolicyPreset, "policySchema" of ' +
        "makePolicyUtils, or DISPATCH_POLICY_SCHEMA",
    });
  }
  t.deepEqual(await describeSchema(pool, "dispatch_policy"), before);
  const second = { ...options, schema: "second_worker", policySchema: "second_policy" };
  const both = [await makePolicyUtils(options), await makePolicyUtils(second)];
  for (const utils of both) await utils.addJob("greet", { name: "Ana" });
  for (const utils of both) t.is((await utils.tick()).admitted, 1);
  for (const schema of ["graphile_worker", "second_worker"])
    t.is((await pool.query(`select from ${schema}.jobs`)).rows.length, 1, schema);
  for (const utils of both) await utils.release();
});

test("the command migrates an empty database", async (t) => {
  const { url, pool } = await testDatabase(t, { migrated: false });
  const main = new URL("../../src/cli/main.ts", import.meta.url).pathname;
  const { stdout } = await run(process.execPath, [main, "migrate", "--connection", url]);
  t.is(stdout, "Schemas are up to date.\n");
  t.is((await pool.query("select * from dispatch_policy.policies")).rows.length, 0);
  const refused = await t.throwsAsync(run(process.execPath, [main, "migrat"]));
  t.regex(String((refused as { stderr?: string }).stderr), /unknown command "migrat"/);
});

test("is installed with Graphile Worker's own migration through the preset", async (t) => {
  const { url, pool } = await testDatabase(t, { migrated: false });
  const { dispatchPolicyPreset } = await import("../../src/index.ts");
  const preset = {
    extends: [dispatchPolicyPreset({ policies: [greet] })],
    worker: { connectionString: url, logger: silent },
  };
  await runMigrations({ preset });
  t.is((await pool.query("select * from dispatch_policy.policies")).rows.length, 0);
});
