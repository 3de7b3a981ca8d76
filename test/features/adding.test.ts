import test, { type ExecutionContext } from "ava";
import {
  type AnyPolicy,
  ArgumentError,
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  makePolicyUtils,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

async function utilsOf(t: ExecutionContext, policy: AnyPolicy) {
  const { url, pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ connectionString: url, policies: [policy], logger: silent });
  t.teardown(async () => utils.release());
  return { utils, pool };
}

const both = definePolicy("both", {
  tasks: ["a", "b"],
  partitionBy: "k",
  gates: [concurrency({ max: 1 })],
});

test("jobs of a policy over several tasks are added by task; by policy it is a clear error", async (t) => {
  const { utils, pool } = await utilsOf(t, both);
  await t.throwsAsync(utils.addJob(both, { k: "x" }), {
    instanceOf: ArgumentError,
    message: /several tasks \(a, b\)/,
  });
  await t.throwsAsync(addPolicyJob(pool, both, { k: "x" }), { instanceOf: ArgumentError });
  const job = await utils.addJob("b", { k: "x" });
  t.is(job.task_identifier, "b");
  t.is(job.staged && job.policy, "both");
});

const many = definePolicy("many", {
  partitionBy: "k",
  gates: [concurrency({ max: 3 }), concurrency({ name: "all", scope: "policy", max: 50 })],
});

test("partitions of one call each have their own limits, told of once; from SQL as from JavaScript", async (t) => {
  const { utils, pool } = await utilsOf(t, many);
  const payloads = ["a", "b", "a", "c"].map((k) => ({ k }));
  await utils.addJobs(payloads.map((payload) => ({ identifier: "many", payload })));
  await pool.query(
    `select dispatch_policy.add_jobs(array(
       select json_populate_record(null::graphile_worker.job_spec, j) from json_array_elements($1) j))`,
    [JSON.stringify(["d", "e"].map((k) => ({ identifier: "many", payload: { k } })))],
  );
  const arrivals = await table(pool, "arrivals").all();
  t.is(new Set(arrivals.map(({ limits }) => JSON.stringify(limits))).size, 1);
  await utils.tick();
  const limiters =
    "select gate, scope_key, in_flight from dispatch_policy.limiters where gate <> 'ahead' order by 1, 2";
  t.deepEqual((await pool.query(limiters)).rows, [
    { gate: "all", scope_key: "", in_flight: 6 },
    { gate: "concurrency", scope_key: "a", in_flight: 2 },
    ...["b", "c", "d", "e"].map((k) => ({ gate: "concurrency", scope_key: k, in_flight: 1 })),
  ]);
});

test("of a call of which a full backlog keeps one job, that one has its partition's limits", async (t) => {
  const bounded = definePolicy("bounded", {
    partitionBy: "k",
    gates: [concurrency({ max: 1 })],
    maxPending: { partition: 1, whenFull: "drop_newest" },
  });
  const { utils, pool } = await utilsOf(t, bounded);
  await utils.addJob(bounded, { k: "full" });
  const both = ["full", "new"].map((k) => ({ identifier: "bounded", payload: { k } }));
  const [full, kept] = await utils.addJobs(both);
  t.true(full?.staged && full.dropped);
  t.true(kept?.staged && kept.dropped === undefined);
  await utils.tick();
  const limiters =
    "select scope_key, in_flight from dispatch_policy.limiters where gate <> 'ahead' order by 1";
  t.deepEqual((await pool.query(limiters)).rows, [
    { scope_key: "full", in_flight: 1 },
    { scope_key: "new", in_flight: 1 },
  ]);
});

test("how long a job waits until it is due is counted by the database, in each way to add it", async (t) => {
  const { utils, pool } = await utilsOf(t, many);
  const client = await pool.connect();
  await client.query("begin");
  const { rows } = await client.query("select now() + interval '90 minutes' as due");
  await addPolicyJob(client, many, { k: "a" }, { wait: "1.5 hours" });
  await addPolicyJob(client, many, { k: "a" }, { wait: "1.5 hours", jobKey: "k" });
  await addPolicyJobs(client, [
    { policy: many, payload: { k: "b" }, wait: "1.5 hours" },
    { policy: many, payload: { k: "b" }, wait: "0 seconds" },
  ]);
  await client.query("commit");
  client.release();
  const staged = await pool.query("select run_at, reason from dispatch_policy.staged_jobs order by id");
  const dueAt = staged.rows.map(({ run_at }) => run_at.getTime() - rows[0].due.getTime());
  t.deepEqual(dueAt, [0, 0, 0, -90 * 60_000]);
  const plain = await utils.addJob("ungoverned", {}, { wait: "2 days" });
  const { rows: all } = await pool.query(
    "select run_at - created_at as waits from graphile_worker.jobs where id = $1",
    [plain.id],
  );
  t.is(all[0].waits.days, 2);
});
