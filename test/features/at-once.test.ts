// A job that nothing goes before goes in the call that adds it, while a tick loop leads.
import { EventEmitter } from "node:events";
import test, { type ExecutionContext } from "ava";
import { addPolicyJob, addPolicyJobs, makePolicyUtils, policyEvents } from "../../src/index.ts";
import { greet } from "../helpers/policies.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

const ana = { name: "Ana" };

/** Nothing of `Ana` is in flight, nothing is to be routed, and the loop leads for longer than its beats may be late. */
async function rests(worker: TestWorker): Promise<void> {
  await worker.everythingIsReleased();
  await until("all is routed", async () => {
    const counts = [table(worker.pool, "arrivals").count(), table(worker.pool, "freed").count()];
    return (await Promise.all(counts)).every((count) => count === 0);
  });
  const expires_at = () => "clock_timestamp() + interval '29 seconds'";
  await table(worker.pool, "leases").set({ expires_at });
}

/** A worker whose first job has run, so its partition exists. */
async function world(
  t: ExecutionContext,
  tasks: Parameters<typeof startWorker>[1]["tasks"] = { greet: () => {} },
) {
  const worker = await startWorker(t, { policies: [greet], tasks });
  const first = await worker.utils.addJob("greet", ana);
  t.is((first as { admitted?: true }).admitted, undefined, "its partition is new");
  await worker.sees("job:success");
  await rests(worker);
  return worker;
}

test("every way to add a job in a transaction of its own says that it went, and a client's does not", async (t) => {
  const worker = await world(t);
  const ways: Record<string, () => Promise<object | undefined>> = {
    "utils.addJob": () => worker.utils.addJob("greet", ana),
    "addPolicyJob with a pool": () => addPolicyJob(worker.pool, greet, ana),
    "addPolicyJobs with a pool": async () =>
      (await addPolicyJobs(worker.pool, [{ policy: greet, payload: ana }]))[0],
  };
  let ran = 1;
  for (const [way, add] of Object.entries(ways)) {
    t.like(await add(), { staged: true, admitted: true, partition: "Ana", shard: "default" }, way);
    await worker.sees("job:success", ++ran);
    await rests(worker);
  }
  const client = await worker.pool.connect();
  const job = await addPolicyJob(client, greet, ana).finally(() => client.release());
  t.false("admitted" in job);
  await worker.sees("job:success", ++ran);
});

test("a job that adds one lets it go as well, and it starts as admitted", async (t) => {
  const added: object[] = [];
  const worker = await world(t, {
    greet: async (payload, helpers) => {
      if ((payload as { next?: string }).next === undefined) return;
      added.push(await helpers.addJob("greet", { name: "Ben" }));
    },
  });
  await worker.utils.addJob("greet", { name: "Ben" });
  await worker.sees("job:success", 2);
  await rests(worker);
  await worker.utils.addJob("greet", { ...ana, next: "Ben" } as never);
  await worker.sees("job:success", 4);
  t.like(added, { length: 1, 0: { admitted: true } });
  await rests(worker);
});

test("it is told of as a job that was added, and as one that was admitted", async (t) => {
  const worker = await world(t);
  const events = new EventEmitter();
  const utils = await makePolicyUtils({ pgPool: worker.pool, policies: [greet], logger: silent, events });
  t.teardown(() => utils.release());
  const told: object[] = [];
  for (const name of ["dispatchPolicy:stage", "dispatchPolicy:admit"] as const)
    policyEvents(events).on(name, (event) => told.push({ name, ...event }));
  await utils.addJob("greet", ana);
  t.deepEqual(told, [
    { name: "dispatchPolicy:stage", policy: "greet", partition: "Ana", count: 1 },
    { name: "dispatchPolicy:admit", policy: "greet", shard: null, count: 1 },
  ]);
});

test("once no worker leads, a job is staged", async (t) => {
  const worker = await world(t);
  await worker.stop();
  const utils = await makePolicyUtils({ pgPool: worker.pool, policies: [greet], logger: silent });
  t.teardown(() => utils.release());
  t.false("admitted" in (await utils.addJob("greet", ana)));
  t.is((await worker.row("select count(*)::int as n from dispatch_policy.staged_jobs")).n, 1);
});
