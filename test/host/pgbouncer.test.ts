// The side that adds jobs works behind a pooler in transaction mode: it needs no state of a session.
import test, { type ExecutionContext } from "ava";
import {
  addJobAdhoc,
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  makePolicyUtils,
  quickAddJob,
} from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { findPgBouncer, pgBouncer } from "../helpers/pgbouncer.ts";
import { silent } from "../helpers/silent.ts";

const policy = definePolicy("p", { partitionBy: "key", gates: [concurrency({ max: 1 })] });
const program = findPgBouncer();
const pooled = program ? test : test.skip;
if (!program)
  console.error("# Skipped: adding jobs through PgBouncer, which is not installed (or name it in PGBOUNCER)");

/** `direct` reaches the server itself, `pool` goes through the pooler. */
async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  const url = await pgBouncer(t, program!, database.url);
  const pool = quietPool(url, { max: 8 });
  t.teardown(() => pool.end());
  const staged = async () =>
    (await database.pool.query("select count(*)::int as n from dispatch_policy.staged_jobs")).rows[0]
      .n as number;
  return { direct: database.pool, pool, url, staged, utils };
}

pooled("all that adds jobs, from many clients at once", async (t) => {
  const { pool, url, staged, utils } = await world(t);
  const others = await makePolicyUtils({ connectionString: url, policies: [policy], logger: silent });
  t.teardown(() => others.release());
  const ways: ((key: string) => Promise<unknown>)[] = [
    (key) => addPolicyJob(pool, policy, { key }),
    (key) => addPolicyJob(pool, policy, { key }, { jobKey: key, queueName: "q", priority: 1 }),
    (key) => addPolicyJobs(pool, [{ policy, payload: { key } }]),
    (key) => others.addJob("p", { key }),
    (key) => others.addJobs([{ identifier: "p", payload: { key } }]),
    (key) => pool.query("select dispatch_policy.add_job('p', $1)", [{ key }]),
    (key) =>
      pool.query(
        "select dispatch_policy.add_jobs(array[row('p', $1::json, null, null, null, null, null, null)::graphile_worker.job_spec])",
        [{ key }],
      ),
  ];
  await Promise.all(ways.flatMap((add, way) => Array.from({ length: 10 }, (_, n) => add(`${way}-${n}`))));
  t.is(await staged(), 70);
  await addJobAdhoc({ connectionString: url, policies: [policy], logger: silent }, "p", { key: "adhoc" });
  await quickAddJob({ connectionString: url, policies: [policy], logger: silent }, "p", { key: "quick" });
  t.is(await staged(), 72);
  t.false((await others.addJob("plain", {})).staged);
  t.is((await utils.tick()).admitted, 50);
});

pooled("a transaction of one's own: jobs come with its commit, or not at all", async (t) => {
  const { pool, staged } = await world(t);
  for (const [end, expected] of [
    ["rollback", 0],
    ["commit", 3],
  ] as const) {
    const client = await pool.connect();
    await client.query("begin");
    await addPolicyJob(client, policy, { key: "a" });
    await addPolicyJobs(client, [{ policy, payload: { key: "b" } }]);
    await client.query(`select dispatch_policy.add_job('p', '{"key": "c"}')`);
    await t.throwsAsync(addPolicyJob(client, policy, {} as never), { code: "payload_refused" });
    await client.query(end);
    client.release();
    t.is(await staged(), expected);
  }
});

pooled("adding leaves no state behind in the pooler's connections, and relies on none", async (t) => {
  const { direct, pool, staged } = await world(t);
  const settings = "select name, setting from pg_settings where source = 'session' order by name";
  const stateOf = async () => {
    const client = await pool.connect();
    try {
      await client.query("begin"); // both looks from one connection
      const { rows: set } = await client.query(settings);
      const { rows: prepared } = await client.query("select name from pg_prepared_statements");
      const { rows: channels } = await client.query("select pg_listening_channels() as channel");
      return { set: set.filter(({ name }) => name !== "application_name"), prepared, channels };
    } finally {
      await client.query("rollback");
      client.release();
    }
  };
  const before = await stateOf();
  for (let n = 0; n < 20; n++) await addPolicyJob(pool, policy, { key: `k${n}` }, { jobKey: `k${n}` });
  for (let look = 0; look < 4; look++) t.deepEqual(await stateOf(), before);
  const { rows: locks } = await direct.query(
    `select from pg_locks where locktype = 'advisory' and database = (
       select oid from pg_database where datname = current_database())`,
  );
  t.is(locks.length, 0);
  t.is(await staged(), 20);
});
