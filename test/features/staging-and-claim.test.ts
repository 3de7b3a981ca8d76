import test, { type ExecutionContext } from "ava";
import { runOnce, type Task, WorkerPreset } from "graphile-worker";
import { addPolicyJob, addPolicyJobs, concurrency, definePolicy, throttle } from "../../src/index.ts";
import { type Ctx, FULL, policyOf, scenario, sqlPolicyOf, VIAS } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

const HOUR = 3600;
/** Of the functions that route and admit: who has to wait for a lock takes longer. */
const LOCK_TIMEOUT_MS = 2000;
const inAnHour = () => new Date(Date.now() + HOUR * 1000);

const endpoints = definePolicy("fetch_endpoint", {
  context: (payload: unknown) => payload as { endpoint: string; max: number },
  partitionBy: (ctx) => ctx.endpoint,
  gates: ({ concurrency }) => [concurrency({ max: (ctx) => ctx.max })],
});

test("scenario 1: the first job makes the partition and its limiter, and the newest context holds", async (t) => {
  const it = await scenario(t, endpoints);
  const add = (max: number, client = it.pool as Parameters<typeof addPolicyJob>[0]) =>
    addPolicyJob(client, endpoints, { endpoint: "ep1", max }, { runAt: inAnHour() });

  await add(5);
  t.is((await it.tickNow()).admitted, 0);
  t.is(await it.staged("ep1"), 1);
  t.deepEqual((await it.partition("ep1")).context, { endpoint: "ep1", max: 5 });
  t.is((await it.limiter("concurrency", "ep1")).max, 5);

  await add(10);
  await it.tickNow();
  t.is((await it.limiter("concurrency", "ep1")).max, 10);

  const late = await it.transaction();
  await add(5, late);
  await add(10);
  await it.tickNow();
  await late.query("commit");
  await it.tickNow();
  t.is(
    (await it.limiter("concurrency", "ep1")).max,
    10,
    "a late commit of an earlier staging changes nothing",
  );
  t.is((await it.partition("ep1")).context.max, 10);
  t.is(await it.staged("ep1"), 4);
});

test("scenario 1: a late first arrival, and one with other numbers in between", async (t) => {
  const it = await scenario(t, endpoints);
  const late = await it.transaction();
  await addPolicyJob(late, endpoints, { endpoint: "ep1", max: 3 });
  await addPolicyJob(it.pool, endpoints, { endpoint: "ep1", max: 7 });
  await it.tickNow();
  await addPolicyJob(it.pool, endpoints, { endpoint: "ep1", max: 9 });
  await late.query("commit");
  await it.tickNow();
  t.is((await it.limiter("concurrency")).max, 9);
  t.is((await it.inFlight()).length, 3, "both of the others go all the same");
});

test("scenario 1: throttles and weights follow the newest context too", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: (ctx) => ctx.rate, per: "1 minute" })] });
  await it.stage("1@a", { rate: 4, weight: 2 });
  await it.tick();
  t.like(await it.limiter("throttle"), { rate: 4, capacity: 4, tokens: 3 });
  await it.stage("1@a", { rate: 8, weight: 5 });
  await it.tick();
  t.is((await it.limiter("throttle")).rate, 8);
  t.is((await it.partition("a")).weight, 5);
});

test("scenario 1: a limit that several partitions share follows the newest of them", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ scope: (ctx) => ctx.account, max: (ctx) => ctx.max })],
  });
  await it.stage("1@a", { account: "x", max: 1 });
  await it.stage("1@b", { account: "x", max: 2 });
  t.is((await it.tick()).admitted, 2);
  t.is((await it.limiter("concurrency", "x")).max, 2);
});

for (const via of VIAS) {
  test(`scenario 2: a partition is paused before its first job (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    await it.utils.pause({ policy: "p", partition: "new" });
    await it.stage("1@new 1@other");
    t.is((await it.tick()).admitted, 1, "only the other one");
    t.is(await it.staged("new"), 1);
    t.true((await it.partition("new")).paused);
    await it.utils.resume({ policy: "p", partition: "new" });
    t.is((await it.tick()).admitted, 1);
  });

  test(`scenario 2: a pause that is rolled back never was (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    for (const pause of [
      "dispatch_policy.pause('p', partition => 'k')",
      "dispatch_policy.pause('p')",
      `dispatch_policy.pause("all" => true)`,
    ]) {
      const operator = await it.transaction();
      await operator.query(`select * from ${pause}`);
      await operator.query("rollback");
      await it.stage("1@k");
      t.is((await it.tickNow()).admitted, 1, pause);
    }
  });

  test(`scenario 2: a pause until a time ends by itself (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    await it.stage("1@k 1@other");
    const until = it.at(60);
    await it.utils.pause({ policy: "p", partition: "k", until });
    const first = await it.tick();
    t.is(first.admitted, 1);
    t.deepEqual(first.nextEligibleAt, until);
    t.is((await it.tick(59.9)).admitted, 0);
    t.is((await it.tick(60)).admitted, 1);
  });

  test(`scenario 2: a partition that is new is paused until a time (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    await it.utils.pause({ policy: "p", partition: "k", until: new Date(Date.now() + 60_000) });
    await it.stage("2@k");
    t.is((await it.tick()).admitted, 0);
    t.is((await it.tick(61)).admitted, 2);
  });

  test(`scenario 2: a policy is paused, the other is not; until a time, and resumed early (${via})`, async (t) => {
    const other = policyOf("other");
    const it = await scenario(t, {}, { via, others: [other] });
    await it.stage("1@k");
    await it.utils.addJob("other", { key: "k" });
    await it.rows("select * from dispatch_policy.pause('p', until => $1)", [it.at(60)]);
    const both = await it.utils.tick({ now: it.at(0) });
    t.is(both.admitted, 1, "the other policy's");
    t.deepEqual((await it.tick()).nextEligibleAt, it.at(60));
    t.is((await it.tick(59)).admitted, 0);
    t.is((await it.tick(61)).admitted, 1);
    await it.utils.pause({ all: true });
    await it.stage("1@k");
    t.is((await it.tick(62)).admitted, 0);
    await it.rows(`select * from dispatch_policy.resume("all" => true)`);
    t.is((await it.tick(62)).admitted, 1);
  });
}

test("scenario 2: of a partition on hold resume lifts the hold; it ends by itself too", async (t) => {
  const it = await scenario(t);
  await it.utils.hold({ policy: "p", partition: "k", forMs: 60_000 });
  await it.stage("2@k 1@other");
  t.is((await it.tick()).admitted, 1);
  t.is((await it.tick(61)).admitted, 1, "one goes first");
  await it.finish(1, "k");
  t.is((await it.tick(61)).admitted, 1, "and then the others");
  await it.utils.hold({ policy: "p", partition: "k", until: it.at(600) });
  await it.stage("1@k");
  t.is((await it.tick(62)).admitted, 0);
  await it.utils.resume({ policy: "p", partition: "k" });
  t.is((await it.tick(62)).admitted, 1);
});

test("scenario 3: 2,500 jobs of one key in one call", async (t) => {
  const it = await scenario(t);
  t.is((await it.stage("2500@k")).length, 2500);
  t.is(await it.staged(), 2500);
  await it.tick();
  t.is(await it.staged(), 2400);
  const ids = await addPolicyJobs(
    it.pool,
    Array.from({ length: 2500 }, () => ({ policy: it.own, payload: { key: "k" } })),
  );
  t.is(new Set(ids.map((job) => job.id)).size, 2500);
  t.is(await it.staged("k"), 4900);
});

test("scenario 3: the same from SQL", async (t) => {
  const it = await scenario(t, sqlPolicyOf("s", { gates: [concurrency({ max: 3 })] }));
  const [row] = await it.rows(`select count(*)::int as n from dispatch_policy.add_jobs(array(
    select row('s', '{"key": "k"}', null, null, null, null, null, null)::graphile_worker.job_spec
    from generate_series(1, 2500)))`);
  t.is(row.n, 2500);
  t.is(await it.staged("k"), 2500);
  t.is((await it.tickNow()).admitted, 3);
});

for (const via of VIAS) {
  test(`scenario 4: shards are ticked apart, and a partition stays in its first shard (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    await it.stage("1@k1", { shard: "a" });
    await it.stage("1@k2", { shard: "b" });
    t.is((await it.tick(0, "a")).admitted, 1);
    t.deepEqual(await it.inFlightBy(), { k1: 1 });
    t.is((await it.tick()).admitted, 1, "all shards");
    await it.stage("1@k1", { shard: "b" });
    t.is((await it.tick(0, "b")).admitted, 0);
    t.is((await it.partition("k1")).shard, "a");
    t.is((await it.tick(0, "a")).admitted, 1);
    t.is((await it.tick(0, "unknown")).admitted, 0);
  });

  test(`scenario 5: the only partition is locked by another session (${via})`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 5 })] }, { via });
    await it.stage("1@k");
    await it.tickNow();
    await it.stage("1@k");
    const other = await it.transaction();
    await table(other, "partitions").lock({ key: "k" });
    const started = performance.now();
    t.is((await it.tickNow()).admitted, 0);
    t.true(performance.now() - started < LOCK_TIMEOUT_MS, "it did not wait");
    await other.query("rollback");
    t.is((await it.tickNow()).admitted, 1);
  });

  test(`scenario 6: decayed admits 30 days old (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    for (const [decayed, age] of [
      [5, "30 days"],
      [1e6, "30 days"],
      [100, "30 years"],
    ]) {
      await it.stage("3@k");
      await it.tickNow();
      const decayed_at = () => `clock_timestamp() - interval '${age}'`;
      await table(it.pool, "partitions").set({ decayed_admits: decayed, decayed_at }, { key: "k" });
      await it.stage("2@k");
      t.is((await it.tickNow()).admitted, 2);
      const value = (await it.partition("k")).decayed_admits;
      t.true(Math.abs(value - 2) <= 1e-9, `${value}`);
    }
  });
}

test("scenario 7: two bulk enqueuers with the same 200 partitions in opposite order", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ scope: "policy", max: 5 })] });
  const [one, two] = [await it.makeUtils(), await it.makeUtils()];
  const specs = Array.from({ length: 200 }, (_, n) => ({ identifier: "p", payload: { key: `k${n}` } }));
  const rounds = FULL ? 50 : 15;
  const enqueue = async (utils: typeof one, jobs: typeof specs) => {
    for (let round = 0; round < rounds; round++) await utils.addJobs(jobs as never);
  };
  const ended = new AbortController();
  const ticking = (async () => {
    while (!ended.signal.aborted) await it.tickNow();
  })();
  await t.notThrowsAsync(Promise.all([enqueue(one, specs), enqueue(two, specs.toReversed())]));
  ended.abort();
  await ticking;
  t.is((await it.staged()) + (await it.inFlight()).length, 2 * 200 * rounds);
});

test("scenario 7: job keys in opposite order do not deadlock either", async (t) => {
  const it = await scenario(t);
  const [one, two] = [await it.makeUtils(), await it.makeUtils()];
  const specs = Array.from({ length: 100 }, (_, n) => ({
    ...{ identifier: "p", payload: { key: `k${n}` }, jobKey: `job ${n}` },
  }));
  const enqueue = async (utils: typeof one, jobs: typeof specs) => {
    for (let round = 0; round < 10; round++) await utils.addJobs(jobs as never);
  };
  await t.notThrowsAsync(Promise.all([enqueue(one, specs), enqueue(two, specs.toReversed())]));
  t.is(await it.staged(), 100);
});

test.serial(
  "scenario 7: nobody waits for an application transaction that staged a job and stays open",
  async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1000 })] });
    await it.stage("1@k");
    await it.tickNow();
    const application = await it.transaction();
    await addPolicyJob(application, it.own, { key: "k" });
    const openUntil = performance.now() + (FULL ? 3000 : 300);
    let slowest = 0;
    const timed = async (act: () => Promise<unknown>) => {
      const started = performance.now();
      await act();
      slowest = Math.max(slowest, performance.now() - started);
    };
    let rounds = 0;
    do {
      await timed(() => it.stage("1@k 1@other"));
      await timed(() => it.tickNow());
      rounds++;
    } while (performance.now() < openUntil);
    t.is((await it.inFlight()).length, 1 + 2 * rounds, "each round's jobs are admitted");
    t.true(slowest < LOCK_TIMEOUT_MS, `the slowest took ${slowest} ms`);
    await application.query("commit");
    t.is((await it.tickNow()).admitted, 1);
  },
);

for (const via of VIAS) {
  test(`scenario 8: by priority, lower first, then run_at, then age (${via})`, async (t) => {
    const it = await scenario(t, { admissionBatchSize: 1 }, { via });
    const ago = (minutes: number) => new Date(Date.now() - minutes * 60_000);
    const ids: string[] = [];
    const add = async (priority: number, runAt: Date) => {
      const [job] = await it.stage("1@k", {}, { priority, runAt });
      ids.push(job?.id ?? "");
    };
    const same = ago(2);
    await add(0, same);
    await add(10, ago(60));
    await add(-5, ago(1));
    await add(0, ago(3));
    await add(0, same);
    const order: number[] = [];
    for (let n = 0; n < ids.length; n++) {
      t.is((await it.tick()).admitted, 1);
      for (const { staged_id } of await it.inFlight()) {
        const index = ids.indexOf(staged_id);
        if (!order.includes(index)) order.push(index);
      }
    }
    t.deepEqual(order, [2, 3, 0, 4, 1]);
  });

  test(`scenario 9: the one partition with due work goes first, the others when it is time (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    const future = Array.from({ length: 50 }, (_, n) => `1@later${n}`).join(" ");
    await it.stage(future, {}, { runAt: inAnHour() });
    await it.stage("1@due");
    const first = await it.tick();
    t.like(first, { admitted: 1, claimed: 1 });
    t.deepEqual(await it.inFlightBy(), { due: 1 });
    t.like(await it.tick(), { admitted: 0, claimed: 0 });
    t.like(await it.tick(HOUR - 90), { admitted: 0, claimed: 0 });
    t.like(await it.tick(HOUR + 60), { admitted: 50, claimed: 50 });
  });
}

test("scenario 9: a partition's future job waits beside its due one", async (t) => {
  const it = await scenario(t);
  const runAt = inAnHour();
  await it.stage("1@k", {}, { runAt, priority: -10 });
  await it.stage("1@k");
  const first = await it.tick();
  t.is(first.admitted, 1);
  t.true(Math.abs((first.nextEligibleAt?.getTime() ?? 0) - runAt.getTime()) < 5000);
  t.is((await it.tick(HOUR - 90)).admitted, 0);
  t.is((await it.tick(HOUR + 60)).admitted, 1);
});

for (const [size, ticks] of [
  [2, 3],
  [1, 5],
  [3, 2],
] as const) {
  test(`scenario 9: five partitions, ${size} looked at in a tick, all get something within ${ticks} ticks`, async (t) => {
    const it = await scenario(t, { admissionBatchSize: 1 }, { settings: { partitionBatchSize: size } });
    await it.stage("10@a 10@b 10@c 10@d 10@e");
    for (let n = 0; n < ticks; n++) t.is((await it.tick()).admitted, Math.min(size, 5));
    t.deepEqual(Object.keys(await it.inFlightBy()).sort(), ["a", "b", "c", "d", "e"]);
  });
}

/** Two jobs, between thousands of arrivals that bring no job: one is admitted, and the other is not routed yet. */
async function flooded(t: ExecutionContext) {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  await it.stage("1@full");
  t.is((await it.tickNow()).admitted, 1);
  const { id, key, limits } = await table(it.pool, "partitions").one();
  const arrival = {
    policy: "p",
    partition_id: id,
    key,
    limits: JSON.stringify(limits),
    due_at: () => "now()",
  };
  const arrive = () => table(it.pool, "arrivals").add(arrival, 6000);
  await arrive();
  await it.stage("1@quiet");
  await arrive();
  return it;
}

test("a tick finds a job that may go among thousands of arrivals", async (t) => {
  const it = await flooded(t);
  t.is((await it.utils.tick({ policy: "p" })).admitted, 1);
});

test("so does a pool that runs once", async (t) => {
  const it = await flooded(t);
  let ran = 0;
  const task: Task = async () => void ran++;
  await runOnce({
    ...{ preset: { extends: [WorkerPreset, it.preset] }, pgPool: it.connections(4), logger: silent },
    ...{ taskList: { p: task }, noHandleSignals: true },
  });
  t.is(ran, 2);
});
