// Workers beside transactions that an application leaves open: jobs that these have nothing to do with go on.
import test, { type ExecutionContext } from "ava";
import { Logger } from "graphile-worker";
import { concurrency, definePolicy, makePolicyUtils, throttle } from "../../src/index.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

test("arrivals without number of a partition that a transaction holds keep no other partition's job waiting", async (t) => {
  const ran: string[] = [];
  const policy = definePolicy("work", { partitionBy: "k", gates: [concurrency({ max: 5 })] });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { work: async (payload) => void ran.push((payload as { k: string }).k) },
  });
  await worker.utils.addJob(policy, { k: "hot" });
  await until("the first ran", () => ran.length === 1);
  const app = await worker.pool.connect();
  t.teardown(() => app.release());
  await app.query("begin");
  await app.query("select dispatch_policy.hold('work', 'hot', now() + interval '1 second')");
  const { id, key } = await table(worker.pool, "partitions").one();
  const arrival = { policy: "work", partition_id: id, key, due_at: () => "now()" };
  await table(worker.pool, "arrivals").add(arrival, 25_000);
  for (const k of ["other", "third"]) await worker.utils.addJob(policy, { k });
  await until("the others ran", () => ran.length === 3);
  await app.query("rollback");
  await worker.utils.addJob(policy, { k: "hot" });
  await until("all ran", () => ran.length === 4);
  t.deepEqual(ran.toSorted(), ["hot", "hot", "other", "third"]);
});

/** A worker with a policy whose jobs need a token of their own key and one of all, and what has run by then. */
async function throttled(t: ExecutionContext) {
  const ran: string[] = [];
  const policy = definePolicy("work", {
    partitionBy: "k",
    gates: [
      throttle({ rate: 1000, per: "1 second" }),
      throttle({ name: "all", scope: "policy", rate: 1000, per: "1 second" }),
    ],
  });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { work: async (payload) => void ran.push((payload as { k: string }).k) },
  });
  const add = (k: string) => worker.utils.addJob(policy, { k });
  for (const k of ["a", "b"]) await add(k);
  await until("both ran", () => ran.length === 2);
  const app = await worker.pool.connect();
  t.teardown(() => app.release());
  return { worker, add, app, ran };
}

test("a limit that an operator has set and not committed delays no job", async (t) => {
  const { add, app, ran } = await throttled(t);
  await app.query("begin");
  await app.query(`select dispatch_policy.set_limit('work', 'all', '{"rate": 500}')`);
  for (const k of ["a", "b"]) await add(k);
  await until("both ran", () => ran.length === 4);
  await app.query("rollback");
  t.pass();
});

test("take in an open transaction delays only those who use its throttle, and these go once it ends", async (t) => {
  const { add, app, ran, worker } = await throttled(t);
  await app.query("begin");
  await app.query("select dispatch_policy.take('work', 'throttle', 'a')");
  await add("a");
  for (let n = 0; n < 5; n++) {
    await add("b");
    await until("that of b ran", () => ran.length === 3 + n);
  }
  t.is(ran.filter((k) => k === "a").length, 1);
  await app.query("commit");
  await until("that of a ran", () => ran.length === 8);
  t.false(worker.log.some(({ message }) => message.includes("failed")));
});

test("a process that starts beside a pause that is not committed says what it waits for, and goes on after", async (t) => {
  const { app, worker } = await throttled(t);
  await app.query("begin");
  await app.query("select dispatch_policy.pause('work')");
  const warnings: string[] = [];
  const logger = new Logger(() => (level, message) => {
    if (level === "warning") warnings.push(message);
  });
  const policies = [definePolicy("work", { partitionBy: "k" })];
  const utils = makePolicyUtils({ pgPool: worker.pool, policies, logger });
  await until("it says so", () =>
    warnings.some((message) => /"work".*another transaction has locked it/.test(message)),
  );
  await app.query("rollback");
  await (await utils).release();
  t.pass();
});
