import test from "ava";
import type { Task } from "graphile-worker";
import { concurrency, runTickLoop, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, FULL, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

const five = { gates: [concurrency<Ctx>({ max: 5 })] };
const gate = { policy: "p", gate: "concurrency" };
const k = { policy: "p", partition: "k" };
const byContext = { gates: [concurrency<Ctx>({ max: (ctx) => ctx.max })] };

for (const via of VIAS) {
  test(`scenario 22: a cap of 5 with 2 in flight lets 3 through (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.stage("2@k");
    await it.tick();
    await it.stage("10@k");
    const pass = await it.tick();
    t.is(pass.admitted, 3);
    t.deepEqual(pass.denied, { concurrency_full: 1 });
    t.is((await it.tick()).admitted, 0);
    await it.finish(2);
    t.is((await it.tick()).admitted, 2);
  });

  test(`scenario 22: an operator lowers the cap to 1 with 3 in flight (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.stage("3@k");
    await it.tick();
    await it.stage("10@k");
    await it.utils.setLimit({ policy: "p", gate: "concurrency", key: "k", set: { max: 1 } });
    for (const finished of [0, 1, 1]) {
      await it.finish(finished);
      t.is((await it.tick()).admitted, 0);
    }
    t.is((await it.inFlight()).length, 1);
    await it.finish(1);
    t.is((await it.tick()).admitted, 1);
    await it.utils.clearLimit({ policy: "p", gate: "concurrency", key: "k" });
    t.is((await it.tick()).admitted, 4, "raising it takes effect at once");
  });

  test(`scenario 22: a newer job's context lowers the cap to 1 with 3 in flight, another raises it (${via})`, async (t) => {
    const it = await scenario(t, byContext, { via });
    await it.stage("3@k", { max: 3 });
    t.is((await it.tick()).admitted, 3);
    await it.stage("10@k", { max: 1 });
    for (const finished of [0, 1, 1]) {
      await it.finish(finished);
      t.is((await it.tick()).admitted, 0);
    }
    await it.finish(1);
    t.is((await it.tick()).admitted, 1);
    await it.stage("1@k", { max: 4 });
    t.is((await it.tick()).admitted, 3);
  });

  test(`scenario 22: a cap of 0 halts until it is raised (${via})`, async (t) => {
    const it = await scenario(t, byContext, { via });
    await it.stage("3@k", { max: 0 });
    const pass = await it.tick();
    t.is(pass.admitted, 0);
    t.deepEqual(pass.denied, { max_zero: 1 });
    t.is(pass.nextEligibleAt, null);
    t.is((await it.tick(3600)).admitted, 0);
    await it.stage("1@k", { max: 2 });
    t.is((await it.tick(3600)).admitted, 2);
  });

  for (const key of ["k", undefined]) {
    test(`scenario 22: an override to 0 until a time ends by itself (${via}, key ${key})`, async (t) => {
      const it = await scenario(t, five, { via });
      await it.stage("2@k");
      await it.tick();
      await it.utils.setLimit({
        ...{ policy: "p", gate: "concurrency", set: { max: 0 }, until: it.at(60) },
        ...(key ? { key } : {}),
      });
      await it.stage("10@k");
      const pass = await it.tick();
      t.is(pass.admitted, 0);
      t.deepEqual(pass.denied, { max_zero: 1 });
      t.deepEqual(pass.nextEligibleAt, it.at(60));
      t.is((await it.tick(59.9)).admitted, 0);
      t.is((await it.tick(60)).admitted, 3);
    });
  }

  test(`scenario 22: an override of a key that has no limiter yet, from SQL (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.rows(
      "select * from dispatch_policy.set_limit('p', 'concurrency', '{\"max\": 1}', key => 'new')",
    );
    await it.stage("10@new 10@k");
    t.is((await it.tick()).admitted, 6);
    t.deepEqual(await it.inFlightBy(), { k: 5, new: 1 });
    await it.rows("select * from dispatch_policy.clear_limit('p', 'concurrency', key => 'new')");
    t.is((await it.tick()).admitted, 4);
  });

  test(`scenario 22: an override that starts later (${via})`, async (t) => {
    const it = await scenario(t, five, { via });
    await it.stage("20@k");
    await it.utils.setLimit({
      ...{ policy: "p", gate: "concurrency", key: "k", set: { max: 8 } },
      ...{ from: it.at(60), until: it.at(120) },
    });
    const pass = await it.tick();
    t.is(pass.admitted, 5);
    t.deepEqual(pass.nextEligibleAt, it.at(60));
    t.is((await it.tick(60)).admitted, 3);
    await it.finish(8);
    t.is((await it.tick(120)).admitted, 5);
  });

  test(`scenario 22: two caps of one policy, one over an account (${via})`, async (t) => {
    const it = await scenario(
      t,
      {
        gates: [
          concurrency<Ctx>({ max: 3 }),
          concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 5 }),
        ],
      },
      { via },
    );
    await it.stage("10@a 10@b", { account: "x" });
    await it.stage("10@c", { account: 7 });
    t.is((await it.tick()).admitted, 8);
    const { a, b, c } = await it.inFlightBy();
    t.deepEqual([(a ?? 0) + (b ?? 0), c], [5, 3]);
    t.true(Math.abs((a ?? 0) - (b ?? 0)) === 1);
    t.is((await it.limiter("account", "7")).in_flight, 3);
    await it.finish(3, "a");
    t.true((await it.tick()).admitted >= 2);
    t.is((await it.limiter("account", "x")).in_flight, 5);
  });
}

test("scenario 22: an override outlives what jobs say, and shows among the limits", async (t) => {
  const it = await scenario(t, byContext);
  await it.stage("10@k", { max: 5 });
  await it.utils.setLimit({ policy: "p", gate: "concurrency", key: "k", set: { max: 2 }, by: "ana" });
  t.is((await it.tick()).admitted, 2);
  await it.stage("1@k", { max: 9 });
  t.is((await it.tick()).admitted, 0);
  const [override] = await it.utils.limits({ policy: "p" });
  t.like(override, { gate: "concurrency", key: "k", override: { max: 2 }, by: "ana" });
  await it.utils.clearLimit({ policy: "p", gate: "concurrency", key: "k" });
  t.is((await it.tick()).admitted, 7);
});

test("scenario 22: with a throttle beside it, slots that come back need tokens too", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ max: 2 }), throttle<Ctx>({ rate: 3, per: "1 minute" })],
  });
  await it.stage("10@k");
  t.is((await it.tick()).admitted, 2);
  await it.finish(2);
  t.is((await it.tick()).admitted, 1);
  await it.finish(1);
  t.is((await it.tick()).admitted, 0);
  t.is((await it.tick(20)).admitted, 1);
});

/** A worker with its loop, whose jobs note when they start. */
async function started(it: Scenario): Promise<{ key: string; at: number }[]> {
  const starts: { key: string; at: number }[] = [];
  const task: Task = async (payload) =>
    void starts.push({ key: (payload as { key: string }).key, at: Date.now() });
  await it.worker({ tasks: { p: task } });
  return starts;
}

for (const [what, stop] of [
  ["an override to 0", (it: Scenario, until: Date) => it.utils.setLimit({ ...gate, set: { max: 0 }, until })],
  ["a pause of the policy", (it: Scenario, until: Date) => it.utils.pause({ policy: "p", until })],
  ["a pause of the partition", (it: Scenario, until: Date) => it.utils.pause({ ...k, until })],
  ["a hold", (it: Scenario, until: Date) => it.utils.hold({ ...k, until })],
] as const) {
  test(`scenario 22: ${what} ends by itself where a loop runs`, async (t) => {
    const it = await scenario(t, five);
    await it.stage("1@k");
    await it.tickNow();
    await it.finish(1);
    const until1 = new Date(Date.now() + 1500);
    await stop(it, until1);
    const starts = await started(it);
    await it.stage("3@k");
    await until("all have started", async () => starts.length === 3);
    for (const { at } of starts) t.true(at >= until1.getTime() - 5, `${at - until1.getTime()} ms after`);
  });
}

test("scenario 22: a cleared override and a resumed partition go on at once where a loop runs", async (t) => {
  const it = await scenario(t, five);
  const starts = await started(it);
  await it.utils.setLimit({ ...gate, set: { max: 0 } });
  await it.utils.pause({ policy: "p", partition: "l" });
  await it.stage("2@k 2@l");
  await until("they wait", async () => (await it.limiter("concurrency", "k"))?.max === 0);
  await it.utils.clearLimit(gate);
  await until("k has started", async () => starts.length === 2);
  await it.utils.resume({ policy: "p", partition: "l" });
  await until("l has started", async () => starts.length === 4);
  t.deepEqual(
    starts.map(({ key }) => key),
    ["k", "k", "l", "l"],
  );
});

test("scenario 22: a job of a time to come starts then, where a loop runs", async (t) => {
  const it = await scenario(t, five);
  const starts = await started(it);
  const runAt = new Date(Date.now() + 1200);
  await it.stage("1@k", {}, { runAt });
  await until("it has started", async () => starts.length === 1);
  t.true((starts[0]?.at ?? 0) >= runAt.getTime() - 5);
});

/** Starts loops in processes' stead: each with connections of its own. */
function startLoops(it: Scenario, count: number, signal: AbortSignal): Promise<unknown> {
  const preset = it.preset;
  return Promise.all(
    Array.from({ length: count }, () =>
      runTickLoop({ preset, pgPool: it.connections(4), logger: silent, signal }),
    ),
  );
}

test.serial("scenario 23: a cap that 1,000 partitions share is kept, and used", async (t) => {
  const seconds = FULL ? 60 : 5;
  t.timeout(240_000);
  const it = await scenario(
    t,
    { gates: [concurrency<Ctx>({ name: "shared", scope: (ctx) => ctx.account, max: 20 })] },
    { settings: { defaults: { ahead: null } } },
  );
  const keys = Array.from({ length: 1000 }, (_, n) => `${FULL ? 4 : 1}@k${n}`);
  await it.stage(keys.join(" "), { account: "shared" });

  let running = 0;
  let most = 0;
  let busyMs = 0;
  let changedAt = performance.now();
  const count = (change: number) => {
    const now = performance.now();
    busyMs += running * (now - changedAt);
    changedAt = now;
    running += change;
    most = Math.max(most, running);
  };
  const task: Task = async () => {
    count(1);
    await new Promise((resolve) => setTimeout(resolve, 200 + Math.random() * 800));
    count(-1);
  };
  const end = new AbortController();
  t.teardown(() => end.abort());
  const loops = startLoops(it, 4, end.signal);
  const workers = [
    await it.worker({ tasks: { p: task }, slots: 20 }),
    await it.worker({ tasks: { p: task }, slots: 20 }),
  ];
  await until("all slots are taken", async () => running === 20);

  count(0);
  busyMs = 0;
  const started = performance.now();
  let mostInFlight = 0;
  while (performance.now() - started < seconds * 1000) {
    mostInFlight = Math.max(mostInFlight, (await it.limiter("shared")).in_flight);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  count(0);
  const busy = busyMs / (20 * (performance.now() - started));
  t.true((await it.staged()) > 0, "work waited all the time");
  end.abort();
  await it.utils.pause({ all: true });
  await Promise.all([loops, ...workers.map((worker) => worker.stop())]);

  t.log(`${(busy * 100).toFixed(1)} % busy`);
  t.true(most <= 20, `${most} at once`);
  t.true(mostInFlight <= 20, `${mostInFlight} in flight`);
  // a few seconds beside other tests say nothing of the pace: the full form, alone, asks for it
  if (FULL) t.true(busy >= 0.95, `${busy}`);
});
