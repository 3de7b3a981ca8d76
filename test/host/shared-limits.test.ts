// Limits shared by policies of different processes and shards: never exceeded, never idle for want of a wake-up.
import test, { type ExecutionContext } from "ava";
import { run, WorkerPreset } from "graphile-worker";
import {
  type AnyPolicy,
  concurrency,
  dispatchPolicyPreset,
  makePolicyUtils,
  type PolicyUtils,
  shared,
  throttle,
} from "../../src/index.ts";
import { atLength } from "../helpers/at-length.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { random, seedOf } from "../helpers/random.ts";
import { type Ctx, type Payload, policyOf } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

const byAccount = (max: number) => concurrency<Ctx>({ scope: (ctx) => ctx.account, max });

interface World {
  readonly utils: PolicyUtils;
  /** The policies of the jobs that have ended. */
  readonly ended: readonly string[];
  /** The most that ran at once, by key. */
  readonly most: Readonly<Record<string, number>>;
}

/** A worker pool for each policy, which knows no other. `keysOf` says what a job occupies, `ms` how long it takes. */
async function pools(
  t: ExecutionContext,
  policies: readonly AnyPolicy[],
  keysOf: (policy: string, payload: Required<Payload>) => readonly string[],
  ms: () => number,
): Promise<World & { judge(): Promise<void> }> {
  const database = await lentDatabase(t);
  const running: Record<string, number> = {};
  const most: Record<string, number> = {};
  const ended: string[] = [];
  for (const policy of policies) {
    const name = policy.identifier;
    const runner = await run({
      preset: {
        extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy], sweepInterval: "1 hour" })],
      },
      ...{ pgPool: database.connections(10), concurrency: 5, pollInterval: 1000, noHandleSignals: true },
      logger: silent,
      taskList: {
        [name]: async (payload) => {
          const keys = keysOf(name, payload as Required<Payload>);
          for (const key of keys) {
            running[key] = (running[key] ?? 0) + 1;
            most[key] = Math.max(most[key] ?? 0, running[key]);
          }
          await new Promise((resolve) => setTimeout(resolve, ms()));
          for (const key of keys) running[key]!--;
          ended.push(name);
        },
      },
    });
    t.teardown(() => runner.stop());
  }
  const utils = await makePolicyUtils({ pgPool: database.connections(2), policies, logger: silent });
  t.teardown(() => utils.release());
  const judge = async () => {
    const { rows } = await database.pool.query(
      `select (select count(*)::int from dispatch_policy_internal.partitions where blocked_on is not null) as blocked,
         (select repaired from dispatch_policy_internal.all_policies) as repaired,
         (select deadlocks::int from pg_stat_database where datname = current_database()) as deadlocks`,
    );
    t.deepEqual(rows, [{ blocked: 0, repaired: {}, deadlocks: 0 }]);
  };
  return { utils, ended, most, judge };
}

test("workers of two policies keep a limit, and wake each other without a sweep", async (t) => {
  const gates = () => [
    shared("api", concurrency<Ctx>({ scope: "policy", max: 2 })),
    shared("calls", throttle<Ctx>({ scope: (ctx) => ctx.account, rate: 200, per: "1 second", burst: 1 })),
  ];
  const policies = ["a", "b"].map((name) => policyOf(name, { gates: gates() }));
  const { utils, ended, most, judge } = await pools(
    t,
    policies,
    () => ["api"],
    () => 5,
  );
  const jobs = Array.from({ length: 60 }, (_, n) => ({
    identifier: n % 2 === 0 ? "a" : "b",
    payload: { key: `k${n % 5}`, account: `x${n % 3}`, shard: n % 4 < 2 ? "one" : "two" },
  }));
  for (const part of [jobs.slice(0, 20), jobs.slice(20)]) await utils.addJobs(part as never);
  await until("all have run", () => ended.length === jobs.length);
  t.is(ended.filter((name) => name === "a").length, 30);
  t.deepEqual(most, { api: 2 });
  await judge();
});

atLength("three policies name shared limits in different orders, and operators change one", async (t) => {
  t.timeout(600_000);
  const { between } = random(seedOf(t));
  const x = () => shared("x", byAccount(2));
  const y = () => shared("y", concurrency<Ctx>({ scope: (ctx) => `y${ctx.rate}`, max: 2 }));
  const z = () => shared("z", throttle<Ctx>({ scope: "policy", rate: 120, per: "1 second", burst: 5 }));
  const policies = [
    policyOf("a", { gates: [x(), y(), z()] }),
    policyOf("b", { gates: [y(), z(), x()] }),
    policyOf("c", { gates: [concurrency<Ctx>({ max: 1 }), x()] }),
  ];
  const { utils, ended, most, judge } = await pools(
    t,
    policies,
    (policy, { account, rate }) => (policy === "c" ? [`${account}`] : [`${account}`, `y${rate}`]),
    () => between(0, 12),
  );
  const jobs = Array.from({ length: 900 }, (_, n) => ({
    identifier: "abc"[n % 3],
    payload: { key: `k${n % 7}`, account: `x${n % 4}`, rate: n % 5, shard: n % 2 === 0 ? "one" : "two" },
  }));
  for (let from = 0; from < jobs.length; from += 100) {
    await utils.addJobs(jobs.slice(from, from + 100) as never);
    if (from % 300 === 0) await utils.setLimit({ policy: "x", gate: "x", key: "x1", set: { max: 1 } });
    if (from % 300 === 100) await utils.clearLimit({ policy: "a", gate: "x", key: "x1" });
  }
  for (let count = 100; count <= jobs.length; count += 100)
    await until(`${count} have run`, () => ended.length >= count);
  t.true(
    Object.values(most).every((n) => n <= 2),
    JSON.stringify(most),
  );
  await judge();
});
