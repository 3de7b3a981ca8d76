import test from "ava";
import { definePolicy } from "../../src/index.ts";
import { startWorker } from "../helpers/worker.ts";
const one = definePolicy("work", { partitionBy: "account", gates: ({ concurrency }) => [concurrency({ max: 1 })] });
test("x", async (t) => {
  const { promise, resolve } = Promise.withResolvers<void>();
  t.teardown(resolve);
  const worker = await startWorker(t, { policies: [one], tasks: { work: () => promise } });
  await worker.utils.addJob(one, { account: "a" });
  await worker.sees("job:start");
  await worker.runner.kill("the test says so").catch((e) => console.log("KILL", e));
  console.log(worker.log.map((l) => `${l.level} ${l.message} ${JSON.stringify(l.scope)}`).join("\n"));
  console.log(await worker.row("select * from graphile_worker.jobs"), await worker.row("select * from dispatch_policy._private_in_flight_jobs"));
  t.pass();
});
test("y", async (t) => {
  const { promise, resolve } = Promise.withResolvers<void>();
  t.teardown(resolve);
  const worker = await startWorker(t, { policies: [one], tasks: { work: () => promise } });
  await worker.utils.addJobs([1, 2, 3].map(() => ({ identifier: "work", payload: { account: "a" } })));
  await worker.sees("job:start");
  await worker.utils.disable({ policy: "work" });
  await worker.sees("job:start", 3).catch(async () => {
    console.log(await worker.row("select * from dispatch_policy._private_partitions"), await worker.row("select * from dispatch_policy.policies"));
    console.log((await worker.pool.query("select * from dispatch_policy.staged_jobs")).rows);
  });
  t.pass();
});
