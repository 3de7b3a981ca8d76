// A limit shared by policies of different processes and shards: never exceeded, never idle for want of a wake-up.
import test from "ava";
import { run, WorkerPreset } from "graphile-worker";
import { concurrency, dispatchPolicyPreset, makePolicyUtils, shared, throttle } from "../../src/index.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { type Ctx, policyOf } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

const JOBS = 60;
const MAX = 2;

test("workers of two policies keep a limit, and wake each other without a sweep", async (t) => {
  const database = await lentDatabase(t);
  const gates = () => [
    shared("api", concurrency<Ctx>({ scope: "policy", max: MAX })),
    shared("calls", throttle<Ctx>({ scope: (ctx) => ctx.account, rate: 200, per: "1 second", burst: 1 })),
  ];
  const [a, b] = ["a", "b"].map((name) => policyOf(name, { gates: gates() }));
  let running = 0;
  let most = 0;
  const ended: string[] = [];
  const worker = async (policy: typeof a, name: string) => {
    const runner = await run({
      preset: {
        extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy!], sweepInterval: "1 hour" })],
      },
      ...{ pgPool: database.connections(10), concurrency: 5, pollInterval: 1000, noHandleSignals: true },
      logger: silent,
      taskList: {
        [name]: async () => {
          running++;
          most = Math.max(most, running);
          await new Promise((resolve) => setTimeout(resolve, 5));
          running--;
          ended.push(name);
        },
      },
    });
    t.teardown(() => runner.stop());
  };
  await worker(a, "a");
  await worker(b, "b");
  const utils = await makePolicyUtils({
    pgPool: database.connections(2),
    policies: [a!, b!],
    logger: silent,
  });
  t.teardown(() => utils.release());
  const jobs = Array.from({ length: JOBS }, (_, n) => ({
    identifier: n % 2 === 0 ? "a" : "b",
    payload: { key: `k${n % 5}`, account: `x${n % 3}`, shard: n % 4 < 2 ? "one" : "two" },
  }));
  for (const part of [jobs.slice(0, 20), jobs.slice(20)]) await utils.addJobs(part as never);
  await until("all have run", () => ended.length === JOBS);
  t.is(ended.filter((name) => name === "a").length, JOBS / 2);
  t.is(most, MAX);
  const { rows } = await database.pool.query(
    `select (select count(*)::int from dispatch_policy_internal.partitions where blocked_on is not null) as blocked,
       (select repaired from dispatch_policy_internal.all_policies) as repaired`,
  );
  t.deepEqual(rows, [{ blocked: 0, repaired: {} }]);
});
