// What psql says of the schema's parts: everything has a comment, and an upgrade keeps and renews them.
import test from "ava";
import type pg from "pg";
import { migrate } from "../../src/db/migrate.ts";
import { testDatabase } from "../helpers/database.ts";
import type { Queryable } from "../helpers/engine.ts";
import { nameOf, table } from "../helpers/table.ts";

const names = { workerSchema: "graphile_worker", schema: "dispatch_policy" };

/** Every part of the schema that is to have a comment, with the one it has. */
const PARTS = `
  select 'schema ' || nspname as part, obj_description(oid, 'pg_namespace') as comment from pg_namespace
    where nspname in ('dispatch_policy', 'dispatch_policy_internal')
  union all select case relkind when 'v' then 'view ' when 'S' then 'sequence ' when 'c' then 'type ' else 'table ' end
      || oid::regclass, case when relkind = 'c' then obj_description(reltype, 'pg_type') else obj_description(oid, 'pg_class') end
    from pg_class where relnamespace in ('dispatch_policy'::regnamespace, 'dispatch_policy_internal'::regnamespace) and relkind in ('r', 'v', 'c')
  union all select 'column ' || c.oid::regclass || '.' || attname, col_description(attrelid, attnum)
    from pg_attribute join pg_class c on c.oid = attrelid
    where relnamespace in ('dispatch_policy'::regnamespace, 'dispatch_policy_internal'::regnamespace) and relkind in ('r', 'v', 'c') and attnum > 0 and not attisdropped
  union all select 'sequence ' || c.oid::regclass, obj_description(c.oid, 'pg_class') from pg_class c
    where relnamespace in ('dispatch_policy'::regnamespace, 'dispatch_policy_internal'::regnamespace) and relkind = 'S'
      and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i')
  union all select 'function ' || proname, obj_description(oid, 'pg_proc') from pg_proc
    where pronamespace in ('dispatch_policy'::regnamespace, 'dispatch_policy_internal'::regnamespace)
  order by 1`;

interface Part {
  part: string;
  comment: string | null;
}

async function comments(client: pg.Pool | pg.ClientBase): Promise<Map<string, string | null>> {
  const { rows } = await client.query<Part>(PARTS);
  return new Map(rows.map(({ part, comment }) => [part, comment]));
}

/** As if an older release had installed the functions. */
const outdate = (db: Queryable) =>
  table(db, "migrations").set({
    routines_hash: "of an older release",
    routines_version: [0, 0, 1],
  });

test("every table, column, type, view and function has a comment", async (t) => {
  const { pool } = await testDatabase(t);
  const all = await comments(pool);
  t.deepEqual(
    [...all].filter(([, comment]) => !comment).map(([part]) => part),
    [],
  );
  for (const kind of ["schema", "table", "column", "type", "view", "function", "sequence"])
    t.true(
      [...all.keys()].some((part) => part.startsWith(`${kind} `)),
      kind,
    );
});

test("a function's comment is the first paragraph of its file, on one line", async (t) => {
  const { pool } = await testDatabase(t);
  const all = await comments(pool);
  t.is(all.get("function _count_repairs"), "Adds what a sweep repaired, by kind, to the totals.");
  t.regex(all.get("function add_job") ?? "", /^Graphile Worker's add_job, .*, else passes it on\.$/);
  t.notRegex(all.get("function add_job") ?? "", /select|\n/);
  t.regex(all.get("function _adaptive_fold") ?? "", /^Folds finished jobs/); // an aggregate
});

test("an upgrade renews the comments, and a second one changes none", async (t) => {
  const { pool } = await testDatabase(t);
  const fresh = await comments(pool);
  const client = await pool.connect();
  t.teardown(() => client.release());
  await outdate(client);
  await client.query(`
    comment on table ${nameOf("freed")} is 'older';
    comment on column dispatch_policy.partitions.reason is null;
    comment on function dispatch_policy.pause is 'older'`);
  await migrate(client, names);
  t.deepEqual(await comments(pool), fresh);
  await outdate(client);
  await migrate(client, names);
  t.deepEqual(await comments(pool), fresh);
});

test("an upgrade describes a function that somebody has overloaded", async (t) => {
  const { pool } = await testDatabase(t);
  const client = await pool.connect();
  t.teardown(() => client.release());
  await outdate(client);
  await client.query(
    "create function dispatch_policy_internal._breadth(a int) returns int language sql as 'select a'",
  );
  await t.notThrowsAsync(migrate(client, names));
});

test("a comment that somebody gave the schema stays", async (t) => {
  const { pool } = await testDatabase(t);
  const client = await pool.connect();
  t.teardown(() => client.release());
  await outdate(client);
  await client.query("comment on schema dispatch_policy is 'ask Ana'");
  await migrate(client, names);
  t.is((await comments(pool)).get("schema dispatch_policy"), "ask Ana");
});

test("an upgrade does not wait for a table that somebody maintains, and puts its functions in", async (t) => {
  const { pool } = await testDatabase(t);
  const [client, other] = [await pool.connect(), await pool.connect()];
  t.teardown(() => {
    client.release();
    other.release();
  });
  await outdate(client);
  await client.query(`
    create or replace function dispatch_policy_internal._breadth(scope text) returns smallint language sql as 'select 9::smallint'`);
  // as a vacuum
  await other.query(`begin; lock table ${nameOf("audit")} in share update exclusive mode`);
  await migrate(client, names);
  await other.query("rollback");
  const { rows } = await client.query("select dispatch_policy_internal._breadth('policy') as breadth");
  t.is(rows[0].breadth, 2);
});

test("processes that upgrade at the same time all succeed", async (t) => {
  const { pool } = await testDatabase(t);
  const fresh = await comments(pool);
  await outdate(pool);
  const clients = await Promise.all(Array.from({ length: 4 }, () => pool.connect()));
  t.teardown(() => {
    for (const client of clients) client.release();
  });
  await t.notThrowsAsync(Promise.all(clients.map((client) => migrate(client, names))));
  t.deepEqual(await comments(pool), fresh);
});
