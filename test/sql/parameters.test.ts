// Every parameter of a statement has a cast, so it does not matter as what a driver declares it.
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";
import pg from "pg";
import { ARGUMENTS, parameter } from "../../src/db/parameters.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { goTheWholeWay } from "../helpers/whole-way.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

test("no statement that runs on a caller's client has a parameter without a cast", (t) => {
  const files = globSync("src/**/*.ts", { cwd: ROOT }).filter((file) => file !== "src/db/migrate.ts");
  t.true(files.length > 80);
  for (const file of files) {
    const bare = readFileSync(ROOT + file, "utf8").match(/\$\d+(?!::)\b/g) ?? [];
    t.deepEqual(bare, [], file);
  }
});

test("the arguments of public functions have the types that the functions expect", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows } = await pool.query<{ verb: string; name: string; type: string }>(
    `select p.proname as verb, a.name, a.type::regtype::text as type
     from pg_proc p, unnest(p.proargnames[:p.pronargs], p.proargtypes::oid[]) a (name, type)
     where p.pronamespace = 'dispatch_policy'::regnamespace and not starts_with(p.proname, '_')
       and p.proname not in ('add_job', 'add_jobs', 'tick')`, // verbs do not call these
  );
  const expected = new Map<string, Set<string>>();
  for (const { name, type } of rows) expected.set(name, (expected.get(name) ?? new Set()).add(type));
  for (const [name, type] of Object.entries(ARGUMENTS)) {
    const cast = `select pg_typeof(${parameter(1, type)})::text as type`;
    const { type: is } = (await pool.query(cast, [null])).rows[0]!;
    t.deepEqual([...(expected.get(name) ?? [])], [is], name);
  }
});

/** The types that a driver declares if it knows only the JavaScript value. 0: none. */
function declaredType(value: unknown): number {
  const { TEXT, INT4, FLOAT8, BOOL, TIMESTAMPTZ } = pg.types.builtins;
  if (Array.isArray(value)) return TEXT_ARRAY;
  if (typeof value === "string") return TEXT;
  if (typeof value === "number") return Number.isInteger(value) ? INT4 : FLOAT8;
  if (typeof value === "boolean") return BOOL;
  return value instanceof Date ? TIMESTAMPTZ : 0;
}
const TEXT_ARRAY = 1009;

/** A client that declares the type of each parameter of this package's statements, in the protocol's Parse message. */
class DeclaringClient extends pg.Client {
  // biome-ignore lint/suspicious/noExplicitAny: pg's own overloads
  override query(...[text, values, ...rest]: any[]): any {
    if (typeof text !== "string" || !Array.isArray(values) || !text.includes("dispatch_policy"))
      return super.query(text, values, ...(rest as []));
    // pg sends the list, and asks the same object for parsers
    const types = Object.assign(values.map(declaredType), { getTypeParser: pg.types.getTypeParser });
    return super.query({ text, values, types } as never, ...(rest as []));
  }
}

test("everything runs if a driver declares each string as text and each number as integer or float8", async (t) => {
  const database = await testDatabase(t);
  const pool = quietPool(database.url, { Client: DeclaringClient as never });
  t.teardown(() => pool.end());
  const bare = pool.query("select dispatch_policy.add_job('p', $1)", ["{}"]);
  await t.throwsAsync(bare, { code: "42883" }, "it declares nothing");
  await goTheWholeWay(t, { ...database, pool });
});
