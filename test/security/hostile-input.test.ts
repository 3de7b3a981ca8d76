// Whatever keys, payloads and specs hold: it is stored as it is or refused, and nobody else's jobs wait for it.
import test from "ava";
import { addPolicyJob, addPolicyJobs, concurrency, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

const paths = definePolicy("paths", { partitionBy: "key", gates: [concurrency({ max: 1 })] });
const pair = definePolicy("pair", { partitionBy: ["a", "b"], gates: [concurrency({ max: 1 })] });
const byContext = definePolicy("by_context", {
  context: (payload) => payload as { key: string },
  partitionBy: (ctx) => ctx.key,
  gates: ({ concurrency }) => [concurrency({ name: "own", scope: (ctx) => ctx.key, max: 1 })],
});

const KEYS = [
  "",
  " ",
  "'",
  `"`,
  "''; drop schema dispatch_policy cascade; --",
  "$$; select 1; $$",
  "$1",
  ":DISPATCH_POLICY_SCHEMA",
  "\\",
  "\\'",
  "\\u0000",
  "%s %I %L %%",
  "{a,b}",
  "[1,2]",
  `{"a": null}`,
  "null",
  "__proto__",
  "constructor",
  "a\nb\r\tc",
  "\u0001\u001f\u007f",
  "é e\u0301 ü 日本語 👩‍👩‍👧 \u202e",
  "x".repeat(1024),
  "é".repeat(512),
];

test("keys of any text: each its own partition, by every way to add, and operators reach it", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [paths, pair, byContext], logger: silent });
  t.teardown(() => utils.release());
  await addPolicyJobs(
    pool,
    KEYS.map((key) => ({ policy: byContext, payload: { key } })),
  );
  for (const key of KEYS) {
    await addPolicyJob(pool, paths, { key });
    await pool.query("select dispatch_policy.add_job('paths', $1)", [JSON.stringify({ key })]);
    if (key.length < 100) await addPolicyJob(pool, pair, { a: key, b: `b${key}` });
  }
  t.is((await utils.tick({ policy: "paths" })).admitted, KEYS.length);
  t.is((await utils.tick({ policy: "by_context" })).admitted, KEYS.length);
  const { rows } = await pool.query(
    "select partition, staged, in_flight from dispatch_policy.partitions where policy = 'paths'",
  );
  t.deepEqual(rows.map(({ partition }) => partition).sort(), [...KEYS].sort());
  t.true(rows.every(({ staged, in_flight }) => staged === 1 && in_flight === 1));
  for (const partition of KEYS) {
    t.like(await utils.pause({ policy: "paths", partition, reason: partition, by: partition }), {
      changed: 1,
    });
    t.like(await utils.setLimit({ policy: "paths", gate: "concurrency", key: partition, set: { max: 2 } }), {
      matched: 1,
    });
    t.is((await utils.explain({ policy: "paths", partition })).reason, "paused");
  }
  const pairs = await pool.query(
    "select task_identifier from dispatch_policy.staged_jobs where policy = 'pair'",
  );
  t.is(pairs.rows.length, KEYS.filter((key) => key.length < 100).length);
});

test("payloads, contexts and specs of any content arrive as they are", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [paths, byContext], logger: silent });
  t.teardown(() => utils.release());
  const deep = JSON.parse(`${'{"d":'.repeat(60)}1${"}".repeat(60)}`);
  const proto = JSON.parse(`{"key": "k", "__proto__": {"polluted": true}, "constructor": {"prototype": 1}}`);
  const payloads = [
    proto,
    { key: "deep", deep },
    ...KEYS.filter((text) => text !== "").map((text, n) => ({ key: `k${n}`, text, [text]: text })),
  ];
  for (const payload of payloads) {
    await addPolicyJob(pool, paths, payload);
    await addPolicyJob(pool, byContext, payload);
  }
  const { rows } = await pool.query(
    "select payload, flags, job_key, queue_name from dispatch_policy.staged_jobs where policy = 'paths' order by id",
  );
  t.deepEqual(
    rows.map(({ payload }) => JSON.stringify(payload)),
    payloads.map((payload) => JSON.stringify(payload)),
  );
  t.is(({} as { polluted?: unknown }).polluted, undefined);
  const texts = KEYS.filter((text) => text !== "" && text.length < 128);
  for (const text of texts) {
    await addPolicyJob(pool, paths, { key: "specs" }, { jobKey: text, queueName: text, flags: [text] });
  }
  const specs = await pool.query(
    "select job_key, queue_name, flags from dispatch_policy.staged_jobs where job_key is not null",
  );
  t.deepEqual(
    specs.rows.map(({ job_key, queue_name, flags }) => [job_key, queue_name, flags]).sort(),
    texts.map((text) => [text, text, [text]]).sort(),
  );
  const { admitted } = await utils.tick({ policy: "paths" });
  t.is(admitted, payloads.length + 1);
});

test("what SQL is given that makes no sense holds up nobody else's job", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [paths], logger: silent });
  t.teardown(() => utils.release());
  const bad = [
    "run_at => '-infinity'",
    "run_at => 'infinity'",
    "run_at => '0001-01-01 BC'",
    "run_at => '290000-01-01'",
    "max_attempts => -1",
    "max_attempts => 0",
    "priority => 40000",
    "priority => -32768",
    "queue_name => repeat('q', 1000)",
    "queue_name => ''",
    "job_key => repeat('k', 100000)",
    "job_key => ''",
    "flags => '{dispatch_policy:x}'",
    "flags => '{null, a}'",
    "flags => array[repeat('f', 100000)]",
    "job_key_mode => 'nonsense'",
    "partition_key => repeat('x', 1025)",
    "payload => null",
  ];
  for (const [n, argument] of bad.entries()) {
    const text = argument.startsWith("payload") ? argument : `payload => '{"key": "bad${n}"}', ${argument}`;
    const outcome = await pool
      .query(`select dispatch_policy.add_job('paths', ${text})`)
      .catch((error) => error);
    if (outcome instanceof Error) t.notRegex(outcome.message, /internal|undefined/, argument);
  }
  // past add_job, as a program with its grant could
  await pool.query("select dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([
      {
        policy: "paths",
        version: 0,
        partitions: [{ key: "forged", shard: "default", context: {}, weight: 1, limits: [] }],
        jobs: [{ n: 0, task: "paths", p: 0, flags: ["dispatch_policy:x", "dispatch_policy:1", "own"] }],
      },
    ]),
  ]);
  const good = await addPolicyJob(pool, paths, { key: "good" });
  let admitted = 0;
  for (let pass = 0; pass < 10; pass++) admitted += (await utils.tick({ policy: "paths" })).admitted;
  t.true(admitted >= 2);
  const { rows } = await pool.query("select staged_id, partition from dispatch_policy.in_flight_jobs");
  t.true(rows.some(({ staged_id }) => staged_id === good.id));
  t.true(rows.some(({ partition }) => partition === "forged"));
  const { rows: leases } = await pool.query(
    "select * from dispatch_policy_internal._lease('', '{paths}', null, '0', false)",
  );
  t.true(leases.length > 0);
  const { rows: forged } = await pool.query("select flags from graphile_worker.jobs where flags ? 'own'");
  t.is(Object.keys(forged[0].flags).filter((flag) => flag.startsWith("dispatch_policy:")).length, 1);
});
