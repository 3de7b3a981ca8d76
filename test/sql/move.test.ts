// Staged jobs that go to another partition: `move`.
import test from "ava";
import { concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";

const HOUR_MS = 3_600_000;
const GATES = { gates: [concurrency(1)] };

async function move(it: Engine, rest: string) {
  return (await it.pool.query(`select * from dispatch_policy.move('p', ${rest})`)).rows[0];
}

/** The staged jobs as they stand, without their partitions. */
const staged = async (it: Engine, partition: string) =>
  (
    await it.pool.query(
      `select id, task_identifier, run_at, priority, job_key, queue_name, flags, cost, created_at, job_id
       from dispatch_policy.staged_jobs where partition = $1 order by priority, run_at, id`,
      [partition],
    )
  ).rows;

/** The jobs whose partition a process is to work out. */
const keyless = async (it: Engine) =>
  (await it.table("keyless_jobs").all({}, "staged_id")).map(({ policy, partition_key }) => ({
    policy,
    partition_key,
  }));

/** Declares policy q as policy p is, with the same task if `takes`. */
const declareQ = (it: Engine, takes: boolean) =>
  it.pool.query(
    `select dispatch_policy_internal._declare_policy(definition || $1, 'q', '{}', now()) from dispatch_policy.policies`,
    [JSON.stringify({ name: "q", tasks: takes ? ["p"] : ["q"] })],
  );

test("jobs keep ids, keys, times, priorities and order; those in flight stay; the way back restores all", async (t) => {
  const it = await engine(t, GATES);
  await it.stage(["a", "b"]);
  await it.passes();
  await it.stage("a");
  await it.stage("a", { priority: -1, cost: 3, flags: ["f"] });
  await it.stage("a", { jobKey: "k", queueName: "q" });
  await it.stage("a", { runAt: new Date(Date.now() + HOUR_MS) });
  await it.stage("b");
  await it.passes();
  const before = [await staged(it, "a"), await staged(it, "b")];
  const ids = before[0]!.map(({ id }) => id);

  t.deepEqual(await move(it, "'a', to_partition => 'b', dry_run => true"), { matched: 4, changed: 0 });
  t.is(await it.staged("a"), 4);
  t.deepEqual(await move(it, "'a', to_partition => 'b', reason => 'renamed', by => 'ana'"), {
    ...{ matched: 4, changed: 4 },
  });
  t.is(await it.staged("a"), 0);
  t.deepEqual(
    (await staged(it, "b")).filter(({ id }) => ids.includes(id)),
    before[0],
  );
  t.is((await it.inFlight("a")).length, 1);
  await it.route();
  t.is(await it.wrongCounters(), 0);
  t.like((await it.pool.query("select * from dispatch_policy.audit")).rows, [
    {
      ...{ verb: "move", policy: "p", partition: "a", reason: "renamed", by: "ana", matched: 4, changed: 4 },
      detail: { to_policy: "p", to_partition: "b", ids: null },
    },
  ]);

  t.deepEqual(await move(it, `'b', to_partition => 'a', ids => '{${ids}}'`), { matched: 4, changed: 4 });
  t.deepEqual([await staged(it, "a"), await staged(it, "b")], before);
  await it.passes();
  t.is(await it.wrongCounters(), 0);
  await it.table("staged_jobs").set({ run_at: () => "now()", due: true });
  t.is(await it.drain(), 7);
  t.deepEqual(
    Object.values(await it.leftovers()).filter((n) => n > 0),
    [],
  );
});

test("the limits of the other partition count, and its slots", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a", { gates: [concurrency(5)] });
  await it.stage("b");
  await it.passes();
  await it.stage(["a", "a", "a"], { gates: [concurrency(5)] });
  await it.pool.query("select dispatch_policy.move('p', 'a', to_partition => 'b')");
  t.is(await it.passes(3), 0, "b's one slot is occupied");
  await it.finish(await it.inFlight("b"));
  t.is(await it.passes(3), 1);
  t.is((await it.limiter("concurrency", "b")).max, 1);
});

test("a partition that waits for tokens is looked at again: the jobs that it gets may be cheaper", async (t) => {
  const it = await engine(t, { gates: [throttle(10, { per: 3600 })] });
  await it.stage("b", { cost: 8 });
  t.is(await it.passes(), 1);
  await it.stage("b", { cost: 8 });
  t.is(await it.passes(), 0);
  await it.pool.query("select dispatch_policy.pause('p', partition => 'a')");
  const [cheap] = await it.stage("a", { cost: 1, priority: -1 });
  await it.route();
  t.like(await move(it, "'a', to_partition => 'b'"), { changed: 1 });
  t.is(await it.passes(2), 1);
  t.is((await it.pool.query("select from graphile_worker.jobs where flags::text ~ $1", [cheap])).rowCount, 1);
});

test("the partition that they leave is looked at again: it waited for a dear job", async (t) => {
  const it = await engine(t, { gates: [throttle(10, { per: 3600 })] });
  await it.stage(["a", "b"], { cost: 8 });
  t.is(await it.passes(), 2);
  const [dear] = await it.stage("a", { cost: 8, priority: -1 });
  await it.stage("a", { cost: 1 });
  t.is(await it.passes(2), 0);
  t.like(await move(it, `'a', to_partition => 'b', ids => '{${dear}}'`), { changed: 1 });
  t.is(await it.passes(2), 1);
});

test("a partition that only a pause has made has no limits: a process with the policy works them out", async (t) => {
  const it = await engine(t, GATES);
  await it.stage(["a", "a", "a"]);
  await it.pool.query("select dispatch_policy.pause('p', partition => 'b')");
  await it.route();
  t.like(await move(it, "'a', to_partition => 'b'"), { changed: 3 });
  await it.pool.query("select dispatch_policy.resume('p', partition => 'b')");
  t.is(await it.passes(2), 0);
  t.is(await it.staged("a"), 0);
  t.deepEqual(
    (await keyless(it)).map(({ partition_key }) => partition_key),
    ["b", "b", "b"],
  );
  t.is(await it.wrongCounters(), 0);
});

test("what has arrived for the other partition tells its limits", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a", { gates: [concurrency(5)] });
  await it.stage("a", { gates: [concurrency(5)] });
  await it.stage("b");
  t.like(await move(it, "'a', to_partition => 'b'"), { changed: 2 });
  t.is(await it.passes(3), 1);
  t.is((await it.inFlight("b")).length, 1);
});

test("where numbers are constants, a new partition has them at once", async (t) => {
  const it = await engine(t, { ...GATES, keyPath: "key" });
  await it.stage(["a", "a"]);
  t.like(await move(it, "'a', to_partition => 'new'"), { changed: 2 });
  t.is(await it.passes(3), 1);
  t.is((await it.inFlight("new")).length, 1);
});

test("a job whose key waits for a process moves with its name", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("b");
  await it.pool.query("select dispatch_policy.add_job('p', '{}', partition_key => 'a')");
  await it.pool.query("select dispatch_policy.add_job('p', '{}', partition_key => 'other')");
  t.like(await move(it, "'a', to_partition => 'b', dry_run => true"), { matched: 1 });
  t.like(await move(it, "'a', to_partition => 'b'"), { matched: 1, changed: 1 });
  t.deepEqual(
    (await keyless(it)).map(({ partition_key }) => partition_key),
    ["b", "other"],
  );
});

test("a step moves those first that go first", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("b");
  const [later] = await it.stage("a", { runAt: new Date(Date.now() + HOUR_MS) });
  const [last] = await it.stage("a");
  const [first] = await it.stage("a", { priority: -1 });
  for (const one of [first, last, later]) {
    t.deepEqual(await move(it, "'a', to_partition => 'b', count => 1"), { matched: 1, changed: 1 });
    t.true((await staged(it, "b")).some(({ id }) => id === one));
  }
  t.deepEqual(await move(it, "'a', to_partition => 'b', count => 1"), { matched: 0, changed: 0 });
});

test("to another policy: it works the partition out, or the operator names it", async (t) => {
  const it = await engine(t, { ...GATES, maxPending: { policy: 10, partition: null, whenFull: "reject" } });
  await it.stage(["a", "a", "a"]);
  await it.passes();
  await it.stage("a");
  await declareQ(it, true);
  const pending = async () => {
    const sums = { p: 0, q: 0 };
    for (const { policy, jobs } of await it.table("pending").all()) sums[policy as "p" | "q"] += jobs;
    return sums;
  };
  const before = await pending();
  t.like(await move(it, "'a', to_policy => 'q', count => 1"), { matched: 1, changed: 1 });
  t.like(await move(it, "'a', to_policy => 'q', to_partition => 'x'"), { matched: 2, changed: 2 });
  t.deepEqual(await keyless(it), [
    { policy: "q", partition_key: null },
    { policy: "q", partition_key: "x" },
    { policy: "q", partition_key: "x" },
  ]);
  t.deepEqual(await pending(), { p: before.p - 3, q: 3 });
  t.is((await it.inFlight("a")).length, 1);
  await it.route();
  t.is(await it.wrongCounters(), 0);
});

const DEADLINE = new Date("2030-01-01");

for (const [order, kept] of [
  ["deadline", [null, DEADLINE, null]],
  ["strict", [Number.NEGATIVE_INFINITY, null, null]],
  [null, [null, null, null]],
] as const) {
  test(`a job that moves to another policy keeps what its order means there: ${order}`, async (t) => {
    const it = await engine(t, GATES);
    const [started, urgent] = await it.stage(["a", "a", "a"]);
    await it.route();
    await declareQ(it, true);
    await it.table("policies").set({ job_order: order }, { name: "q" });
    await it.table("staged_jobs").set({ sort_at: "-infinity" }, { id: started });
    await it.table("staged_jobs").set({ sort_at: DEADLINE }, { id: urgent });
    t.like(await move(it, "'a', to_policy => 'q', to_partition => 'x'"), { changed: 3 });
    t.deepEqual(
      (await it.table("staged_jobs").all({}, "id")).map(({ sort_at }) => sort_at),
      [...kept],
    );
  });
}

test("a moved job keeps its trace, whether or not the partition's limits are known", async (t) => {
  const it = await engine(t, GATES);
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  await it.stage("b");
  await it.stage("a");
  await it.table("staged_jobs").set({ traceparent });
  const traces = async () => (await it.table("staged_jobs").all()).map((job) => job.traceparent);
  for (const [from, to] of [
    ["a", "b"],
    ["b", "unknown"],
  ]) {
    await move(it, `'${from}', to_partition => '${to}'`);
    t.deepEqual(await traces(), [traceparent, traceparent], to);
  }
});

test("what is refused", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a");
  await declareQ(it, false);
  for (const [rest, message] of [
    ["'a'", /to_partition is null, to_policy is null, expected another partition or another policy/],
    ["'a', to_partition => 'a'", /to_partition is 'a', .*expected another/],
    ["'a', to_policy => 'p'", /to_policy is 'p', expected another/],
    ["null, to_partition => 'a'", /partition is null/],
    ["'a', to_partition => 'b', count => 0", /count is 0, expected 1 or more/],
    [
      "'a', to_policy => 'q', dry_run => true",
      /move: a waiting job has the task 'p', expected a task of policy 'q'/,
    ],
    ["'a', to_policy => 'q'", /move: a waiting job has the task 'p', expected a task of policy 'q'/],
  ] as const)
    await t.throwsAsync(move(it, rest), { code: "DPARG", message }, rest);
  await t.throwsAsync(move(it, "'a', to_policy => 'nobody'"), { message: /unknown policy 'nobody'/ });
  await t.throwsAsync(move(it, `'a', to_partition => '${"x".repeat(1025)}'`), { code: "DPKEY" });
  const session = await it.session();
  await session.query("begin isolation level repeatable read");
  await t.throwsAsync(session.query("select dispatch_policy.move('p', 'a', to_partition => 'b')"), {
    message: /move: transaction_isolation is repeatable read/,
  });
  t.is(await it.staged("a"), 1);
});
