// Whoever may create objects elsewhere cannot have them called in our name.
import { readdirSync, readFileSync } from "node:fs";
import test from "ava";
import { makeEngine } from "../../src/db/engine.ts";
import {
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  makePolicyUtils,
  throttle,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { roles } from "../helpers/roles.ts";
import { silent } from "../helpers/silent.ts";
import { workerTable } from "../helpers/table.ts";

const DB = new URL("../../src/db/", import.meta.url);
const ENGINE = readdirSync(DB)
  .map((file) => readFileSync(new URL(file, DB), "utf8"))
  .join("\n");
const SAFE = "search_path=pg_catalog, dispatch_policy_internal, pg_temp";

test("what is called from outside fixes its search_path; what has the owner's rights is closed to PUBLIC", async (t) => {
  const { pool } = await testDatabase(t);
  // a body that is parsed when the function is made (`return …`) names its operators once and for all
  const { rows } =
    await pool.query(`select p.proname as name, p.prosecdef as definer, p.prosqlbody is not null as parsed,
      coalesce(p.proconfig, '{}') as config, has_function_privilege('pg_monitor', p.oid, 'execute') as open,
      exists (select from pg_depend d join pg_rewrite r on r.oid = d.objid
        where d.classid = 'pg_rewrite'::regclass and d.refobjid = p.oid) as in_view
    from pg_proc p where p.pronamespace in ('dispatch_policy'::regnamespace, 'dispatch_policy_internal'::regnamespace)`);
  const called = new Set(
    [...ENGINE.matchAll(/(?:\$\{internal\}\.|count\(client, ["`]|")(_\w+)/g)].map(([, name]) => name),
  );
  t.true(rows.length > 80 && called.size > 30);
  for (const { name, definer, parsed, config, open, in_view } of rows) {
    const outside = !name.startsWith("_") || called.has(name) || in_view;
    if ((outside && !parsed) || definer) t.true(config.includes(SAFE), `${name} has no ${SAFE}`);
    if (definer) t.false(open, `${name} is open to PUBLIC`);
  }
});

/** Exact matches where pg_catalog has only a polymorphic function or a cast: PostgreSQL prefers them. */
const FUNCTIONS = [
  "array_position(text[], text) returns int",
  "cardinality(bigint[]) returns int",
  "cardinality(uuid[]) returns int",
  "unnest(bigint[]) returns setof bigint",
  "unnest(uuid[]) returns setof uuid",
  "unnest(text[]) returns setof text",
  "to_json(text[]) returns json",
  "to_jsonb(text) returns jsonb",
  "exp(int) returns float8",
  "exp(smallint) returns float8",
  "abs(smallint) returns smallint",
  "jsonb_build_object(text, text) returns jsonb",
  "json_build_object(text, text, text, text) returns json",
  "row_to_json(graphile_worker.job_spec) returns json",
  "pg_notify(text, varchar) returns void",
  "make_interval(secs float8) returns interval",
];
const OPERATORS = [
  ["=", "bigint[]"],
  ["=", "text[]"],
  ["&&", "text[]"],
  ["@>", "bigint[]"],
  ["<>", "bigint[]"],
  ["=", "graphile_worker.job_spec"],
] as const;
const MIXED = [
  ["*", "numeric", "int"],
  ["*", "interval", "interval"],
  ["*", "float8", "int"],
  ["/", "interval", "int"],
  ["||", "text[]", "text"],
  ["||", "bigint[]", "bigint"],
  ["-", "timestamptz", "timestamptz"],
] as const;

test("functions and operators in public that fit better than PostgreSQL's own are not called", async (t) => {
  const database = await testDatabase(t);
  const { pool } = database;
  const { nameOf, as } = roles(t, database, ["mallory"]);
  await pool.query(`create role ${nameOf("mallory")} login; grant create on schema public to ${nameOf("mallory")};
    grant usage on schema graphile_worker to ${nameOf("mallory")}`);
  const mallory = await as("mallory");
  const trap = "begin raise exception 'the trap was sprung by %', current_user; end";
  for (const head of FUNCTIONS) {
    await mallory.query(`create function public.${head} language plpgsql as $$ ${trap} $$`);
  }
  const operators = [...OPERATORS.map(([sign, type]) => [sign, type, type] as const), ...MIXED];
  for (const [n, [sign, left, right]] of operators.entries()) {
    await mallory.query(`create function public.trap${n}(${left}, ${right}) returns boolean language plpgsql as $$ ${trap} $$;
      create operator public.${sign} (leftarg = ${left}, rightarg = ${right}, function = public.trap${n})`);
  }
  for (const name of ["policies", "staged_jobs", "jobs", "pg_class", "pg_stat_activity"]) {
    await mallory.query(`create view public.${name} as select 1 / 0 as name`);
  }
  // it works: without a fixed search_path a call would have been caught
  await t.throwsAsync(pool.query("select cardinality('{1}'::bigint[])"), { message: /the trap was sprung/ });

  const policy = definePolicy("work", {
    partitionBy: "key",
    gates: [concurrency({ max: 2 }), throttle({ rate: 100, per: "1 second", scope: "policy" })],
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await addPolicyJob(pool, policy, { key: "a" });
  const keyed = [1, 2, 3].map((n) => ({ policy, payload: { key: `k${n}` }, jobKey: `${n}` }));
  await addPolicyJobs(pool, keyed);
  await pool.query(`select dispatch_policy.add_job('work', '{"key": "b"}', flags => '{x}')`);
  await utils.pause({ policy: "work", partition: "z" });
  await utils.resume({ policy: "work", partition: "z" });
  await utils.setLimit({ policy: "work", gate: "concurrency", set: { max: 1 } });
  await utils.clearLimit({ policy: "work", gate: "concurrency" });
  await utils.admit({ policy: "work", count: 1 });
  await utils.tick();

  // what a worker asks beside Graphile Worker's own, which has no fixed search_path and would be caught
  const engine = makeEngine("dispatch_policy");
  const member = {
    id: "pool",
    slots: 1,
    tasks: ["work"],
    host: "h",
    pid: 1,
    staleAfterMs: 60_000,
    clockBehindMs: 0,
    saidOn: null,
  };
  await engine.beat(pool, member, { policies: ["work"], shards: null, ttlMs: 1000, bids: true });
  const { rows: jobs } = await pool.query(
    "select job_id from dispatch_policy.in_flight_jobs order by job_id",
  );
  t.is(jobs.length, 5);
  const [first, ...others] = jobs.map(({ job_id }) => job_id as string);
  await workerTable(pool).set({ attempts: 2, locked_at: () => "now()", locked_by: "pool" }, { id: first });
  const { rows: locked } = await pool.query(
    `select locked_at as "lockedAt" from graphile_worker.jobs where id = ${first}`,
  );
  const attempt = { jobId: first!, revision: 0, attempt: 2, poolId: "pool", ...locked[0] };
  const slot = await engine.startAttempt(pool, attempt, { ticket: null, unanswered: 0 });
  t.is(slot?.partition, "a");
  await workerTable(pool).set({ locked_at: null, locked_by: null });
  const ended = { admission: null, ok: false, lagMs: 3, attempt: 2 };
  const retry = { attempt: 2, task: "work", after: 0, priority: 0, maxAttempts: 25 };
  t.deepEqual((await engine.release(pool, [{ job: first!, ...ended, retry }])).left_ids, []);
  await pool.query("select dispatch_policy.complete_jobs($1)", [others]);
  const finished = others.map((job) => ({
    job,
    admission: null,
    ok: true,
    lagMs: 1,
    attempt: 1,
    retry: null,
  }));
  t.deepEqual((await engine.release(pool, finished)).left_ids, []);
  t.is((await utils.tick()).admitted, 1, "the retry");
  await engine.stepDown(pool, "pool");
  await engine.workerEnded(pool, "pool");
  await utils.sweep();
  for (const view of [
    "policies",
    "partitions",
    "limiters",
    "staged_jobs",
    "in_flight_jobs",
    "jobs",
    "workers",
    "audit",
  ])
    await t.notThrowsAsync(pool.query(`select * from dispatch_policy.${view}`), view);
});

test("temporary objects of the caller do not get in either", async (t) => {
  const database = await testDatabase(t);
  const { pool } = database;
  const policy = definePolicy("p", { partitionBy: "key", gates: [concurrency({ max: 2 })] });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  const client = await pool.connect();
  t.teardown(() => client.release(true));
  const ours = ["policies", "staged_jobs", "jobs"];
  for (const table of ["pg_class", "pg_namespace", ...ours]) {
    await client.query(`create temp table ${table} (name text, enabled boolean)`);
  }
  await client.query("create domain pg_temp.text as pg_catalog.text check (value = '')");
  await client.query("create domain pg_temp.int as pg_catalog.int4 check (value = 0)");
  await client.query("set search_path = pg_temp, public, pg_catalog");
  await addPolicyJob(client, policy, { key: "a" }, { jobKey: "x" });
  const { rows } = await client.query(`select * from dispatch_policy.add_job('p', '{"key": "b"}')`);
  t.is(rows[0].partition, "b");
  await client.query("select dispatch_policy.pause('p')");
  await client.query("select dispatch_policy.resume('p')");
  const pass = await client.query("select * from dispatch_policy.tick('p')");
  t.is(pass.rows[0].admitted, 2);
  t.is((await client.query("select * from dispatch_policy.limiters")).rows.length, 2 + 1);
});
