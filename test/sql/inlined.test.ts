// What a call costs before it does anything: an expression in SQL is put into the statement that calls it, and what reads
// tables keeps its plan.
import test from "ava";
import { testDatabase } from "../helpers/database.ts";

interface Routine {
  readonly name: string;
  readonly types: readonly string[];
}

test("functions that only compute are put into the statements that call them", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows } = await pool.query<Routine>(
    `select p.proname as name, coalesce(array_agg(format_type(a.type, null) order by a.n) filter (where a.type is not null), '{}') as types
     from pg_proc p join pg_language l on l.oid = p.prolang
     left join unnest(p.proargtypes) with ordinality a (type, n) on true
     where p.pronamespace = 'dispatch_policy_internal'::regnamespace and l.lanname = 'sql' and not p.proretset
       and p.provolatile <> 'v' and p.prorettype <> 'record'::regtype
       and coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) !~* '\\m(from|with)\\M'
     group by p.oid order by 1`,
  );
  t.true(rows.length > 50, `${rows.length}`);
  const client = await pool.connect();
  try {
    await client.query("set search_path = pg_catalog, dispatch_policy_internal, pg_temp");
    const called: string[] = [];
    for (const { name, types } of rows) {
      const columns = types.map((type, n) => `null::${type} as a${n}`).join(", ");
      const call = `${name}(${types.map((_, n) => `x.a${n}`).join(", ")})`;
      const from = types.length > 0 ? ` from (select ${columns} offset 0) x` : "";
      const { rows: plan } = await client.query(`explain (verbose, costs off) select ${call}${from}`);
      if (plan.some((line) => line["QUERY PLAN"].includes(`${name}(`))) called.push(name);
    }
    t.deepEqual(called, []);
  } finally {
    client.release(true);
  }
});
