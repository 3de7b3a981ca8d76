import test from "ava";
import { ArgumentError, addPolicyJob, concurrency, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";

const both = definePolicy("both", {
  tasks: ["a", "b"],
  partitionBy: "k",
  gates: [concurrency({ max: 1 })],
});

test("jobs of a policy over several tasks are added by task; by policy it is a clear error", async (t) => {
  const { url, pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ connectionString: url, policies: [both], logger: silent });
  t.teardown(async () => utils.release());
  await t.throwsAsync(utils.addJob(both, { k: "x" }), {
    instanceOf: ArgumentError,
    message: /several tasks \(a, b\)/,
  });
  await t.throwsAsync(addPolicyJob(pool, both, { k: "x" }), { instanceOf: ArgumentError });
  const job = await utils.addJob("b", { k: "x" });
  t.is(job.task_identifier, "b");
  t.is(job.staged && job.policy, "both");
});
