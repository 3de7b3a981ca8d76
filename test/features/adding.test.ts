import test, { type ExecutionContext } from "ava";
import {
  type AnyPolicy,
  ArgumentError,
  addPolicyJob,
  concurrency,
  definePolicy,
  makePolicyUtils,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

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
  const arrivals = "select distinct limits from dispatch_policy._private_arrivals";
  t.is((await pool.query(arrivals)).rows.length, 1);
  await utils.tick();
  const limiters =
    "select gate, scope_key, in_flight from dispatch_policy._private_limiters where gate <> 'ahead' order by 1, 2";
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
    "select scope_key, in_flight from dispatch_policy._private_limiters where gate <> 'ahead' order by 1";
  t.deepEqual((await pool.query(limiters)).rows, [
    { scope_key: "full", in_flight: 1 },
    { scope_key: "new", in_flight: 1 },
  ]);
});
