// The roles of docs/production.md, made by its own statements: what each can do, and what it cannot.
import test, { type ExecutionContext } from "ava";
import { runMigrations } from "graphile-worker";
import type pg from "pg";
import {
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  makePolicyUtils,
  throttle,
} from "../../src/index.ts";
import { PAGES } from "../../src/ui/pages/pages.ts";
import { createUi } from "../../src/ui/ui.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { documentedStatements, roles } from "../helpers/roles.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

const policy = definePolicy("p", {
  partitionBy: "key",
  gates: [concurrency({ max: 1 }), throttle({ rate: 5, per: "1 second", scope: "policy" })],
});
const secret = definePolicy("secret", { partitionBy: "key", gates: [concurrency({ max: 1 })] });
const ROLES = ["app_worker", "app_enqueue", "app_operator", "app_reader", "app_nobody"];
const DENIED = "42501";

/** A database that `app_worker` migrated, no superuser, with the roles as documented. */
async function world(t: ExecutionContext) {
  const database = await testDatabase(t, { migrated: false });
  const { pool, url } = database;
  const { nameOf, as } = roles(t, database, ROLES);
  const [owner, ...others] = await documentedStatements(nameOf, new URL(url).pathname.slice(1));
  await pool.query(owner!);
  const at = new URL(url);
  at.username = nameOf("app_worker");
  const owners = quietPool(at.href, { max: 5 });
  t.teardown(() => owners.end());
  await runMigrations({ pgPool: owners, logger: silent });
  const utils = await makePolicyUtils({ pgPool: owners, policies: [policy, secret], logger: silent });
  for (const statements of others) await pool.query(statements);
  await pool.query(`create role ${nameOf("app_nobody")} login`);
  const denied = async (client: pg.Client, text: string) => {
    const error = await t.throwsAsync<Error & { code?: string }>(client.query(text), undefined, text);
    // a view of several tables is no target at all
    if (!/^cannot delete from view/.test(error?.message ?? ""))
      t.is(error?.code, DENIED, `${text}: ${error?.message}`);
  };
  return { pool, utils, nameOf, as, denied };
}

test("a role that owns both schemas sets up and upgrades without a right on the database", async (t) => {
  const database = await testDatabase(t, { migrated: false });
  const { nameOf, as } = roles(t, database, ["app_worker"]);
  const role = nameOf("app_worker");
  await database.pool.query(`create role ${role} login;
    create schema graphile_worker authorization ${role};
    create schema dispatch_policy authorization ${role}; create schema dispatch_policy_internal authorization ${role}`);
  const owner = await as("app_worker");
  // as Graphile Worker's documentation says for such a role
  await owner.query(`create table graphile_worker.migrations (
    id int primary key, ts timestamptz default now() not null, breaking boolean not null default false)`);
  const at = new URL(database.url);
  at.username = role;
  const open = () => makePolicyUtils({ connectionString: at.href, policies: [policy], logger: silent });
  const migrations = table(owner, "migrations");
  const version = async () => (await migrations.one()).routines_hash;
  await (await open()).release();
  const hash = await version();
  await migrations.set({ routines_hash: "older", routines_version: [0, 0, 1] });
  const utils = await open();
  t.teardown(() => utils.release());
  t.is(await version(), hash);
  t.truthy(await utils.addJob(policy, { key: "a" }));
});

/** Tables, and views but for those named. */
async function relations(pool: pg.Pool, except: readonly string[] = []): Promise<string[]> {
  const { rows } = await pool.query(
    `select oid::regclass::text as name from pg_class where relkind in ('r', 'v')
       and relnamespace::regnamespace::text in ('dispatch_policy', 'dispatch_policy_internal', 'graphile_worker') and relname <> all ($1)`,
    [except],
  );
  return rows.map(({ name }) => name);
}

test("PUBLIC may do nothing", async (t) => {
  const { pool, as, denied } = await world(t);
  const { rows } = await pool.query(
    `select grantee, privilege_type from pg_namespace, aclexplode(coalesce(nspacl, acldefault('n', nspowner)))
     where nspname in ('dispatch_policy', 'dispatch_policy_internal') and grantee = 0`,
  );
  t.deepEqual(rows, []);
  const nobody = await as("app_nobody");
  await denied(nobody, `select dispatch_policy.add_job('p', '{"key": "k"}')`);
  await denied(nobody, "select dispatch_policy.pause('p')");
  await denied(nobody, "select * from dispatch_policy.policies");
  await denied(nobody, "create function dispatch_policy.f() returns int language sql as 'select 1'");
});

test("USAGE alone, which a DBA may have granted to all, opens nothing", async (t) => {
  const { pool, as, denied } = await world(t);
  await pool.query(
    "grant usage on schema dispatch_policy, dispatch_policy_internal, graphile_worker to public",
  );
  const nobody = await as("app_nobody");
  const { rows } = await nobody.query(
    `select oid::regprocedure from pg_proc where pronamespace in ('dispatch_policy'::regnamespace, 'dispatch_policy_internal'::regnamespace) and prosecdef
       and has_function_privilege(oid, 'execute')`,
  );
  t.deepEqual(rows, []);
  for (const table of await relations(pool)) await denied(nobody, `select from ${table}`);
  await denied(nobody, `select dispatch_policy.add_job('p', '{"key": "k"}')`);
  await denied(nobody, `select dispatch_policy_internal._admit('p', null, 1, null, false)`);
  await denied(nobody, `select dispatch_policy_internal._release('[{"job": 1}]', null)`);
  await denied(
    nobody,
    `select dispatch_policy_internal._beat('x', 1, '{}', '', 1, '1 min', '{p}', null, '1 min', true)`,
  );
});

test("the enqueue role stages jobs, and nothing else", async (t) => {
  const { pool, utils, as, denied } = await world(t);
  const enqueuer = await as("app_enqueue");
  await enqueuer.query(`select dispatch_policy.add_job('p', '{"key": "sql"}', job_key => 'a')`);
  await enqueuer.query(`select dispatch_policy.add_jobs(array[
    row('p', '{"key": "sql"}', null, null, null, null, null, null)::graphile_worker.job_spec])`);
  await enqueuer.query(`select dispatch_policy.add_job('p', '{"key": "sql"}', job_key => 'a')`);
  await addPolicyJob(enqueuer, policy, { key: "js" });
  await addPolicyJob(enqueuer, policy, { key: "js" }, { jobKey: "b", queueName: "q" });
  const { staged, limits } = (
    await pool.query("select count(*)::int as staged from dispatch_policy.staged_jobs")
  ).rows[0];
  t.is(staged, 4, `${limits}`);

  await denied(enqueuer, "select dispatch_policy.add_job('plain', '{}')");
  await denied(enqueuer, "select graphile_worker.add_job('p', '{}')");
  await denied(enqueuer, "select dispatch_policy.pause('p')");
  await denied(enqueuer, "select dispatch_policy.remove(policy => 'p')");
  await denied(enqueuer, "select dispatch_policy.remove_job('a')");
  await denied(enqueuer, `select dispatch_policy.set_limit('p', 'concurrency', '{"max": 100}')`);
  await denied(enqueuer, "select dispatch_policy.tick()");
  await denied(enqueuer, "select dispatch_policy.search('sql')");
  for (const table of await relations(pool)) {
    await denied(enqueuer, `select from ${table}`);
    await denied(enqueuer, `delete from ${table}`);
  }
  const { admitted, denied: held } = await utils.tick({ policy: "p" });
  t.is(admitted, 2, JSON.stringify(held));
});

test("the enqueue role adds jobs with a callback, of tasks that have a policy", async (t) => {
  const { utils, pool, as, denied } = await world(t);
  const enqueuer = await as("app_enqueue");
  const spec = (task: string) =>
    `row('${task}', '{"key": "k"}', null, null, null, null, null, null)::graphile_worker.job_spec`;
  await enqueuer.query(`select dispatch_policy.add_jobs(array[${spec("p")}], then_job => ${spec("p")})`);
  await addPolicyJobs(enqueuer, [], { then: { policy, payload: { key: "k" } } });
  t.is((await pool.query("select from dispatch_policy.staged_jobs")).rowCount, 2);
  await utils.remove({ policy: "p" });
  t.deepEqual(await utils.groups(), [], "it has ended");
  t.is((await pool.query("select from dispatch_policy.staged_jobs")).rowCount, 1, "the callback");
  const code = "DPARG";
  for (const [task, then] of [
    ["plain", "p"],
    ["p", "plain"],
  ] as const)
    await t.throwsAsync(
      enqueuer.query(`select dispatch_policy.add_jobs(array[${spec(task)}], then_job => ${spec(then)})`),
      { code },
    );
  await denied(enqueuer, "select from dispatch_policy.groups");
  await enqueuer.query("set search_path = pg_catalog, dispatch_policy_internal");
  await denied(enqueuer, "select _end_in_groups('{}')");
});

test("the enqueue role's jobs pass while the policy is switched off", async (t) => {
  const { pool, utils, as } = await world(t);
  const enqueuer = await as("app_enqueue");
  await utils.disable({ policy: "p" });
  await enqueuer.query(`select dispatch_policy.add_job('p', '{"key": "k"}')`);
  await addPolicyJob(enqueuer, policy, { key: "k" });
  const { rows } = await pool.query("select from graphile_worker.jobs where task_identifier = 'p'");
  t.is(rows.length, 2);
});

for (const enabled of [true, false]) {
  const state = enabled ? "" : ", also while the policy is switched off";

  test(`the enqueue role learns nothing of jobs outside the policy by their keys${state}`, async (t) => {
    const { pool, utils, as } = await world(t);
    const enqueuer = await as("app_enqueue");
    await pool.query(`select graphile_worker.add_job('payroll', '["salaries"]', queue_name => 'board',
      job_key => 'native', flags => '{vip}', run_at => '2040-01-01', priority => 7, max_attempts => 3)`);
    await utils.addJob(
      "secret",
      { key: "acme" },
      { jobKey: "staged", queueName: "board", flags: ["vip"], priority: 7, runAt: new Date("2040-01-01") },
    );
    if (!enabled) await utils.disable({ policy: "p" });
    for (const key of ["native", "staged"]) {
      const spec = `row('p', '[{"key": "x"}]', null, null, null, '${key}', null, null)::graphile_worker.job_spec`;
      const { rows: added } = await enqueuer.query(
        `select * from dispatch_policy.add_job('p', '[]', job_key => $1, job_key_mode => 'unsafe_dedupe',
           partition_key => 'mine')`,
        [key],
      );
      t.like(added[0], { id: null, task_identifier: "p", queue_name: null, max_attempts: 25, priority: 0 });
      t.like(added[0], { flags: null, policy: "p", dropped: true });
      t.not(added[0].partition, "acme");
      const { rows } = await enqueuer.query(
        `select g::text as all from dispatch_policy.add_governed(array[${spec}], 'unsafe_dedupe', '{mine}') g`,
      );
      t.notRegex(rows[0].all, /salaries|board|vip|2040|acme/);
    }
    const { rows: jobs } = await pool.query(
      "select task_identifier, key from dispatch_policy.jobs order by key",
    );
    t.deepEqual(jobs, [
      { task_identifier: "payroll", key: "native" },
      { task_identifier: "secret", key: "staged" },
    ]);
    if (enabled) return;
    // replaced, as in Graphile Worker, which adds to an array: what was in it is not told
    const { rows: replaced } = await enqueuer.query(
      `select g::text as all from dispatch_policy.add_governed(array[
         row('p', '[1]', null, null, null, 'native', null, null)::graphile_worker.job_spec], 'replace', '{mine}') g`,
    );
    t.notRegex(replaced[0].all, /salaries/);
  });
}

test("the enqueue role is told of the policy's own job that has the key", async (t) => {
  const { utils, as } = await world(t);
  const enqueuer = await as("app_enqueue");
  const add = async () => {
    const text = `select * from dispatch_policy.add_job('p', '{"key": "k"}', job_key => 'a', queue_name => 'q',
      job_key_mode => 'unsafe_dedupe')`;
    return (await enqueuer.query(text)).rows[0];
  };
  const first = await add();
  t.like(await add(), { id: first.id, queue_name: "q", partition: "k", dropped: false });
  await utils.tick({ policy: "p" });
  t.like(await add(), { id: first.id, queue_name: "q", partition: "k", dropped: false });
});

test("jobs with a policy and without in one call, by a role that may add both", async (t) => {
  const { pool } = await world(t);
  const { rows } = await pool.query(`select * from dispatch_policy.add_jobs(array[
    row('plain', '{"n": 1}', null, null, null, 'x', null, null)::graphile_worker.job_spec,
    row('p', '{"key": "k"}', null, null, null, null, null, null)::graphile_worker.job_spec,
    row('other', '{"n": 3}', 'q', null, 3, null, 7, '{f}')::graphile_worker.job_spec,
    row('p', '{"key": "k"}', null, null, null, null, null, null)::graphile_worker.job_spec])`);
  t.deepEqual(
    rows.map((row) => [row.task_identifier, row.staged, row.partition]),
    [
      ["plain", false, null],
      ["p", true, "k"],
      ["other", false, null],
      ["p", true, "k"],
    ],
  );
  const jobs = await pool.query("select * from graphile_worker.jobs order by id");
  t.like(jobs.rows[0], { task_identifier: "plain", key: "x" });
  t.like(jobs.rows[1], {
    task_identifier: "other",
    queue_name: "q",
    max_attempts: 3,
    priority: 7,
    flags: { f: true },
  });
});

test("the operator has the verbs, and leaves its name in the audit", async (t) => {
  const { pool, utils, nameOf, as, denied } = await world(t);
  const operator = await as("app_operator");
  await utils.addJobs(["a", "b", "c"].map((key) => ({ identifier: "p", payload: { key } })));
  await operator.query("select dispatch_policy.tick('p')");
  await operator.query("select dispatch_policy.pause('p', reason => 'test')");
  await operator.query("select dispatch_policy.resume('p')");
  await operator.query("select dispatch_policy.hold('p', 'a', now() + interval '1 hour')");
  await operator.query(`select dispatch_policy.set_limit('p', 'concurrency', '{"max": 3}')`);
  await operator.query("select dispatch_policy.clear_limit('p', 'concurrency')");
  await operator.query(`select dispatch_policy.refresh_context('p', '{"plan": "pro"}')`);
  await operator.query("select dispatch_policy.take('p', 'throttle')");
  await operator.query("select dispatch_policy.sync('p', 'throttle', 100)");
  await operator.query("select dispatch_policy.admit('p', 1)");
  const { rows: jobs } = await pool.query(
    "select job_id from dispatch_policy.in_flight_jobs order by job_id",
  );
  await operator.query("select dispatch_policy.release_slots($1)", [jobs[0].job_id]);
  await operator.query("select dispatch_policy.release_slots($1)", [jobs[0].job_id]);
  await operator.query("select dispatch_policy.reschedule_jobs($1, priority => 3)", [[jobs[1].job_id]]);
  await operator.query("select dispatch_policy.complete_jobs($1)", [[jobs[1].job_id]]);
  await operator.query("select dispatch_policy.permanently_fail_jobs($1)", [[jobs[2].job_id]]);
  await operator.query("select dispatch_policy.remove(policy => 'p')");
  await operator.query("select dispatch_policy.cancel(policy => 'p')");
  await operator.query("select dispatch_policy.remove_job('none')");
  await operator.query("select dispatch_policy.switch_policy('p', false)");
  await operator.query("select dispatch_policy.unstage('p')");
  await operator.query("select dispatch_policy.switch_policy('p', true)");

  const { rows: audit } = await pool.query("select distinct by from dispatch_policy.audit");
  t.deepEqual(audit, [{ by: nameOf("app_operator") }]);
  await denied(operator, `select dispatch_policy.add_job('p', '{"key": "k"}')`);
  await denied(operator, `select dispatch_policy_internal._audit('x', 'p', '', '', '', '{}', '', '', 1, 1)`);
  await denied(operator, "select dispatch_policy.uninstall()");
  await denied(operator, "select dispatch_policy.uninstall(true)");
  for (const table of await relations(pool)) await denied(operator, `delete from ${table}`);
});

test("only the owner gives another time than the database's, which would fill buckets", async (t) => {
  const { pool, utils, nameOf, as } = await world(t);
  await utils.addJobs(["a", "b"].map((key) => ({ identifier: "p", payload: { key } })));
  await utils.tick({ policy: "p" });
  const ahead = "now => clock_timestamp() + interval '10 days'";
  const verbs = ["take('p', 'throttle', ", "sync('p', 'throttle', 100, ", "admit('p', 1, ", "tick('p', "];
  const bySuperuser = await pool.connect();
  const operator = await as("app_operator");
  for (const verb of verbs) {
    const text = `select dispatch_policy.${verb}${ahead})`;
    for (const client of [operator, bySuperuser]) {
      if (client === bySuperuser) await client.query(`set role ${nameOf("app_operator")}`);
      const error = await t.throwsAsync<Error & { code?: string }>(client.query(text));
      t.is(error?.code, "DPARG");
      t.regex(error!.message, /now is 20.*, expected null: only the owner of the schema/);
    }
    await t.notThrowsAsync(operator.query(`select dispatch_policy.${verb}now => null)`), verb);
  }
  await bySuperuser.query("reset role");
  for (const client of [bySuperuser, await as("app_worker")])
    for (const verb of verbs)
      await t.notThrowsAsync(client.query(`select dispatch_policy.${verb}${ahead})`), verb);
  bySuperuser.release();
});

test("the reader sees everything but payloads, and changes nothing", async (t) => {
  const { pool, utils, as, denied } = await world(t);
  await utils.addJobs(["a", "a", "b"].map((key) => ({ identifier: "p", payload: { key } })));
  await utils.tick({ policy: "p" });
  const reader = await as("app_reader");
  const views =
    "policies definitions past_limits partitions limiters in_flight_jobs jobs overrides stops workers dead_workers audit minutes history groups group_jobs undeclared_policies".split(
      " ",
    );
  for (const view of views)
    await t.notThrowsAsync(reader.query(`select * from dispatch_policy.${view}`), view);
  const { rows } = await reader.query(
    "select gate, available from dispatch_policy.limiters where policy = 'p' order by 1, 2",
  );
  t.is(rows.length, 4);
  t.deepEqual((await reader.query("select partition, reason from dispatch_policy.staged_jobs")).rows, [
    { partition: "a", reason: "concurrency_full" },
  ]);
  await t.notThrowsAsync(reader.query("select dispatch_policy.recorded_load('p', 60)"), "for diff");
  const { rows: hits } = await reader.query("select kind, partition from dispatch_policy.search('a')");
  t.deepEqual(hits, [{ kind: "partition", partition: "a" }]);
  const connection = { query: reader.query.bind(reader), release() {} };
  const ui = createUi({
    pool: { connect: async () => connection } as never,
    authorize: () => ({ name: "ana", role: "operator" }), // who is told what PostgreSQL said
  });
  const { rows: jobs } = await reader.query("select max(id)::text as id from dispatch_policy.jobs");
  await addPolicyJobs(pool, [{ policy, payload: { key: "a" } }], { then: { policy, payload: { key: "b" } } });
  const { rows: groups } = await reader.query("select id, oldest_job_id from dispatch_policy.groups");
  t.is(groups.length, 1);
  for (const path of Object.keys(PAGES)) {
    const page = await ui(
      new Request(`http://localhost${path}?policy=p&partition=a&id=${jobs[0].id}&group=${groups[0].id}`),
    );
    t.is(page.status, 200, `${path}: ${await page.text()}`);
  }
  await denied(reader, "select payload from dispatch_policy.staged_jobs");
  for (const table of await relations(pool, [...views, "staged_jobs", "worker_jobs"]))
    await denied(reader, `select from ${table}`);
  for (const table of await relations(pool)) await denied(reader, `delete from ${table}`);
  await denied(reader, "select dispatch_policy.pause('p')");
  await denied(reader, "select dispatch_policy.cancel(policy => 'p')");
  await denied(reader, `select dispatch_policy.add_job('p', '{"key": "k"}')`);
});
