// An operator moves a tenant's jobs: `utils.move`.
import test from "ava";
import {
  ArgumentError,
  concurrency,
  definePolicy,
  fixed,
  makePolicyUtils,
  UnknownPolicyError,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const byAccount = definePolicy("by_account", {
  tasks: ["work", "other"],
  context: (payload) => payload as { account: string; most?: number },
  partitionBy: ({ account }) => account,
  gates: [concurrency<{ most?: number }>({ max: ({ most = 1 }) => most })],
  backoff: fixed("1 hour"),
});

test("thousands of jobs move in steps, to a partition that no job has had", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [byAccount], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJobs(
    Array.from({ length: 1200 }, () => ({ identifier: "work", payload: { account: "acme", most: 3 } })),
  );
  const policy = "by_account";
  const target = { policy, partition: "acme", toPartition: "acme-eu", reason: "region", by: "ana" };
  t.deepEqual(await utils.move({ ...target, dryRun: true }), { matched: 1200, changed: 0 });
  t.deepEqual(await utils.move(target), { matched: 1200, changed: 1200 });
  t.deepEqual(await utils.move(target), { matched: 0, changed: 0 });
  t.is((await utils.tick()).admitted, 3, "it works out the limits, and goes by them");
  t.is((await utils.partitions({ policy, search: "acme-eu" }))[0]?.inFlight, 3);
  const { rows } = await pool.query(
    "select sum(changed)::int as jobs, count(*)::int as steps, min(by) as by from dispatch_policy.audit where verb = 'move'",
  );
  t.deepEqual(rows, [{ jobs: 1200, steps: 3, by: "ana" }]);
});

test("a failed job that waits for its retry moves, runs in the other partition, and waits there when it fails again", async (t) => {
  const it = await startWorker(t, {
    policies: [byAccount],
    tasks: {
      work: async () => {
        throw new Error("not yet");
      },
      other: async () => {},
    },
  });
  const policy = "by_account";
  await it.utils.addJob("other", { account: "acme-eu" });
  await it.utils.addJob("work", { account: "acme" });
  const waits = (attempts: number) =>
    until(`attempt ${attempts} waits for its retry`, async () => {
      const { n } = await it.row(
        `select count(*)::int as n from dispatch_policy.staged_jobs s join graphile_worker.jobs j on j.id = s.job_id
         where j.attempts = $1`,
        [attempts],
      );
      return n === 1;
    });
  await waits(1);
  const before = await it.row("select id, job_id, run_at from dispatch_policy.staged_jobs");
  t.deepEqual(await it.utils.move({ policy, partition: "acme", toPartition: "acme-eu", ids: [before.id] }), {
    ...{ matched: 1, changed: 1 },
  });
  t.like(await it.row("select * from dispatch_policy.staged_jobs"), { ...before, partition: "acme-eu" });
  await it.utils.rescheduleJobs([before.id], { runAt: new Date() });
  await waits(2);
  t.like(await it.row("select * from dispatch_policy.staged_jobs"), {
    ...{ id: before.id, job_id: before.job_id, partition: "acme-eu" },
  });
  await it.everythingIsReleased();
});

test("a task that has another policy now: its jobs move there, and to the partition that this one works out", async (t) => {
  const { pool } = await testDatabase(t);
  const before = await makePolicyUtils({ pgPool: pool, policies: [byAccount], logger: silent });
  await before.addJob("work", { account: "acme", region: "eu" });
  await before.addJob("other", { account: "acme", region: "eu" });
  await before.release();
  const fewer = definePolicy("by_account", { tasks: ["other"], version: 2, partitionBy: "account" });
  const byRegion = definePolicy("by_region", { tasks: ["work"], partitionBy: "region" });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [fewer, byRegion], logger: silent });
  t.teardown(() => utils.release());
  const target = { policy: "by_account", partition: "acme", toPolicy: "by_region" };
  await t.throwsAsync(utils.move(target), {
    instanceOf: ArgumentError,
    message: /move: a waiting job has the task 'other', expected a task of policy 'by_region'/,
  });
  const { rows } = await pool.query(
    "select id from dispatch_policy.staged_jobs where task_identifier = 'work'",
  );
  t.deepEqual(await utils.move({ ...target, ids: [rows[0].id] }), { matched: 1, changed: 1 });
  await utils.tick(); // which works out where it belongs
  await utils.tick();
  const { rows: inFlight } = await pool.query(
    "select policy, partition from dispatch_policy.in_flight_jobs order by policy",
  );
  t.deepEqual(inFlight, [
    { policy: "by_account", partition: "acme" },
    { policy: "by_region", partition: "eu" },
  ]);
});

test("what is refused", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [byAccount], logger: silent });
  t.teardown(() => utils.release());
  const target = { policy: "by_account", partition: "acme" };
  for (const [options, message] of [
    [
      target,
      /^move: expected { toPartition } or { toPolicy }, got toPartition undefined, toPolicy undefined$/,
    ],
    [{ policy: "by_account", toPartition: "a" }, /^move: partition is missing/],
    [{ ...target, toPartition: "acme" }, /^move: to_partition is 'acme', .*expected another partition/],
    [{ ...target, toPartition: "a", ids: ["x"] }, /^move: ids must be an array of job ids/],
    [{ ...target, into: "a" }, /"into" of move/],
  ] as const)
    await t.throwsAsync(utils.move(options as never), { instanceOf: ArgumentError, message });
  await t.throwsAsync(utils.move({ ...target, toPolicy: "nobody" }), { instanceOf: UnknownPolicyError });
});
