// What SQL and TypeScript, or a table and a function, both have to say: they say the same.
import { readFileSync } from "node:fs";
import test from "ava";
import fc from "fast-check";
import { parameters } from "../../src/db/parameters.ts";
import type { Retry } from "../../src/db/releasing.ts";
import { VERSION } from "../../src/own-files.ts";
import { TICK_TASK } from "../../src/policy/job.ts";
import { keyText } from "../../src/policy/key.ts";
import { readSettings } from "../../src/settings.ts";
import { testDatabase } from "../helpers/database.ts";
import { engine } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { seedOf } from "../helpers/random.ts";
import { nameOf, table } from "../helpers/table.ts";

type KeysOf<T> = T extends unknown ? keyof T : never;

/** The compiler refuses this if a name is missing, or one is too many. */
const RETRY = {
  ...{ attempt: true, revision: true, giveUp: true, native: true, after: true, task: true, priority: true },
  ...{ maxAttempts: true, refund: true, jobKey: true, move: true },
} as const satisfies Record<KeysOf<Retry>, true>;

test("the retry message has the same names in TypeScript and in SQL", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows } = await pool.query(
    `select attname as name from pg_attribute a join pg_type y on y.typrelid = a.attrelid
     where y.oid = $1::regtype`,
    [nameOf("retry")],
  );
  t.deepEqual(rows.map(({ name }) => name).toSorted(), Object.keys(RETRY).toSorted());
});

test("a process without settings declares the preset's defaults", async (t) => {
  const { pool } = await testDatabase(t);
  const definition = JSON.stringify({ name: "p", version: 1, tasks: ["p"], gates: [], retries: "restage" });
  await pool.query(
    `select dispatch_policy_internal._declare_policy(${parameters("jsonb", "text", "jsonb", "time")})`,
    [definition, "hash", "{}", new Date()],
  );
  const policies = await table(pool, "policies").all();
  t.deepEqual(
    policies.map(({ half_life, admission_budget, batch_size, ahead, ahead_seconds }) => ({
      halfLifeSeconds: half_life,
      tickAdmissionBudget: admission_budget,
      admissionBatchSize: batch_size,
      ahead: { jobs: ahead, seconds: ahead_seconds },
    })),
    [readSettings({ policies: [] }).defaults],
  );
});

test("a column's default is what its function says", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows: columns } = await pool.query(
    `select d.adrelid::regclass || '.' || a.attname as name, pg_get_expr(d.adbin, d.adrelid) as expression
     from pg_attrdef d join pg_class c on c.oid = d.adrelid
     join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
     where c.relnamespace = 'dispatch_policy_internal'::regnamespace`,
  );
  const defaultOf = async (of: string, field: string) => {
    const column = columns.find((one) => one.name === `${nameOf(of)}.${field}`);
    const { rows } = await pool.query(`select (${column.expression})::text as value`);
    return rows[0].value;
  };
  const { rows: heads } = await pool.query(
    "select priority::text, run_at::text, id::text from dispatch_policy_internal._no_head()",
  );
  for (const one of ["partitions", "arrivals"])
    t.deepEqual(
      {
        priority: await defaultOf(one, "head_priority"),
        run_at: await defaultOf(one, "head_run_at"),
        id: await defaultOf(one, "head_id"),
      },
      heads[0],
    );
  const { admissionBatchSize } = readSettings({ policies: [] }).defaults;
  t.is(await defaultOf("policies", "batch_size"), String(admissionBatchSize));
});

test("the view jobs shows as many attempts as adding a job returns", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage("a");
  const { rows } = await it.pool.query(
    "select max_attempts, dispatch_policy_internal._max_attempts(null) as returned from dispatch_policy.jobs",
  );
  t.is(rows.length, 1);
  t.is(rows[0].max_attempts, rows[0].returned);
});

test("a key may have as many bytes in TypeScript as in SQL", async (t) => {
  const { pool } = await testDatabase(t);
  const isAllowed = async (bytes: number) => {
    const { rows } = await pool.query(
      "select octet_length(dispatch_policy_internal._check_key(repeat('x', $1))) as bytes",
      [bytes],
    );
    return rows[0].bytes === bytes;
  };
  let longest = 0;
  for (;;) {
    try {
      keyText("key", "x".repeat(longest + 1));
    } catch {
      break;
    }
    longest++;
  }
  t.true(await isAllowed(longest));
  await t.throwsAsync(isAllowed(longest + 1), { code: "DPKEY" });
});

test("a number gives the same key in TypeScript and in SQL, or none", async (t) => {
  const { pool } = await testDatabase(t);
  const spellings = [
    "0",
    "-0",
    "-0.0",
    "1.0",
    "10e-1",
    "1E3",
    "0.1e+2",
    "1e-7",
    "-1.5e-300",
    "5e-324",
    "1e400",
    "-1e200000",
  ];
  const large = [
    "9007199254740991",
    "9007199254740992",
    "-9007199254740993",
    "1e15",
    "1e21",
    "123456789012345680",
  ];
  const long = [
    "0.123456789012345",
    "0.1234567890123456",
    "12345678901234.5",
    "123456789012345.6",
    "1.00000000000000000001",
  ];
  const random = fc
    .sample(fc.double({ noNaN: true, noDefaultInfinity: true }), { numRuns: 1000, seed: seedOf(t) })
    .flatMap((value) => [JSON.stringify(value), value.toPrecision(15), value.toPrecision(17)]);
  const numbers = [...spellings, ...large, ...long, ...random];
  const rows = await inside(
    pool,
    "select dispatch_policy_internal._number_key(u.n) as key from unnest($1::text[]) with ordinality u (n, place) order by place",
    [numbers],
  );
  const inTypeScript = (text: string) => {
    try {
      return keyText("key", JSON.parse(text));
    } catch {
      return null;
    }
  };
  const keyed = (keys: (string | null)[]) => numbers.map((number, place) => `${number}: ${keys[place]}`);
  t.deepEqual(keyed(rows.map(({ key }) => key)), keyed(numbers.map(inTypeScript)));
});

test("the crontab's task has one name", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows } = await pool.query("select dispatch_policy_internal._tick_task() as task");
  t.is(rows[0].task, TICK_TASK);
});

test("the code has the version of package.json", (t) => {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  t.is(VERSION, version);
});
