import test from "ava";
import { adaptiveConcurrency, throttle } from "../../src/index.ts";
import { type Ctx, FULL, type Scenario, scenario } from "../helpers/scenario.ts";

const adaptive = (initialMax: number, more: { min?: number; max?: number; targetLagMs?: number } = {}) => ({
  gates: [adaptiveConcurrency<Ctx>({ initialMax, targetLagMs: 60_000, ...more })],
});
const limiter = (it: Scenario, key?: string) => it.limiter("adaptive_concurrency", key);
const cap = async (it: Scenario, key?: string): Promise<number> => (await limiter(it, key)).max;

/** Lets jobs fail without being tried again. */
const once = { maxAttempts: 1 };

test("scenario 25: from 4, cap binding, a fast success makes it 5", async (t) => {
  const it = await scenario(t, adaptive(4));
  const hands = await it.hands();
  await it.stage("10@k");
  t.is((await it.tickNow()).admitted, 4);
  await hands.end(1);
  t.is(await cap(it), 5);
  t.is((await it.tickNow()).admitted, 2);
});

test("scenario 25: a failure makes 5 of 10, and of 5 2", async (t) => {
  const it = await scenario(t, adaptive(10));
  const hands = await it.hands();
  await it.stage("20@k", {}, once);
  t.is((await it.tickNow()).admitted, 10);
  await hands.end(1, "badly");
  t.is(await cap(it), 5);
  t.is((await it.tickNow()).admitted, 0);
  await hands.end(5);
  t.true((await limiter(it)).in_flight === 4 && (await cap(it)) >= 5, "they may grow it again");
});

test("scenario 25: a minimum of 1 stays 1", async (t) => {
  const it = await scenario(t, adaptive(2));
  const hands = await it.hands();
  await it.stage("10@k", {}, once);
  t.is((await it.tickNow()).admitted, 2);
  await hands.end(1, "badly");
  t.is((await limiter(it)).current_max, 1);
  await hands.end(1, "badly");
  t.is((await limiter(it)).current_max, 1);
  t.is((await it.tickNow()).admitted, 2, "nothing in flight: initialMax again");
  await hands.end(1, "badly");
  t.is((await limiter(it)).current_max, 1);
  t.is(await cap(it), 1);
});

test("scenario 25: with nothing in flight at least initialMax go", async (t) => {
  const it = await scenario(t, adaptive(8));
  const hands = await it.hands();
  await it.stage("8@k", {}, once);
  await it.tickNow();
  await hands.end(8, "badly");
  t.is((await limiter(it)).current_max, 4, "one round, one decrease");
  await it.stage("10@k");
  t.is((await it.tickNow()).admitted, 8);
});

test("scenario 25: never above max, nor below min", async (t) => {
  const it = await scenario(t, adaptive(4, { min: 3, max: 5 }));
  const hands = await it.hands();
  await it.stage("40@k", {}, once);
  await it.tickNow();
  for (let n = 0; n < 3; n++) {
    await hands.end(1);
    await it.tickNow();
  }
  t.is(await cap(it), 5);
  t.is((await limiter(it)).in_flight, 5);
  for (let n = 0; n < 3; n++) {
    await hands.end(1, "badly");
    await it.tickNow();
  }
  t.is((await limiter(it)).current_max, 3);
});

for (const initialMax of [1, 2, 5]) {
  const jobs = FULL ? 1000 : 60;
  test(`scenario 25: ${jobs} fast jobs one at a time never raise ${initialMax} far`, async (t) => {
    t.timeout(300_000);
    const it = await scenario(t, adaptive(initialMax));
    for (let n = 0; n < jobs; n++) {
      await it.stage("1@k");
      t.is((await it.tickNow()).admitted, 1);
      await it.finish(1);
      const { current_max } = await limiter(it);
      t.true(current_max <= Math.max(initialMax, 3), `${current_max}`);
    }
  });
}

test("scenario 25: a hundred slow completions of one round are one decrease", async (t) => {
  const it = await scenario(t, adaptive(100, { targetLagMs: 1 }));
  await it.stage("100@k");
  t.is((await it.tickNow()).admitted, 100);
  // the worker comes later: every job has waited longer than a millisecond
  const hands = await it.hands(100);
  await hands.run(100);
  const running = [50, 30, 19];
  for (const count of running) {
    await hands.end(count);
    t.is((await limiter(it)).current_max, 95);
  }
  await hands.end(1);
  t.is((await limiter(it)).current_max, 95);
});

test("scenario 25: the next round may decrease again", async (t) => {
  const it = await scenario(t, adaptive(10));
  const hands = await it.hands();
  await it.stage("20@k", {}, once);
  await it.tickNow();
  await hands.end(6, "badly");
  t.is(await cap(it), 5);
  t.is((await it.tickNow()).admitted, 1);
  await hands.end(4, "badly");
  t.is(await cap(it), 5, "those were admitted before the first decrease");
  await hands.end(1, "badly");
  t.is((await limiter(it)).current_max, 2);
});

const fair = { ...adaptive(5, { min: 1 }), tickAdmissionBudget: 12 };

test("scenario 25: with fairness, four partitions get 3 each", async (t) => {
  const it = await scenario(t, fair);
  await it.stage("10@A 10@B 10@C 10@D");
  t.is((await it.tick()).admitted, 12);
  t.deepEqual(await it.inFlightBy(), { A: 3, B: 3, C: 3, D: 3 });
});

test("scenario 25: with fairness, a cap of 2 with 1 in flight leaves A 1 and the others 11", async (t) => {
  const it = await scenario(t, fair);
  const hands = await it.hands();
  await it.stage("2@A", {}, once);
  t.is((await it.tickNow()).admitted, 2);
  await hands.end(1, "badly");
  t.like(await limiter(it, "A"), { max: 2, in_flight: 1 });
  await it.stage("10@A 10@B 10@C 10@D");
  t.is((await it.tickNow()).admitted, 12);
  const { A, B, C, D } = await it.inFlightBy();
  t.is(A, 1 + 1);
  t.deepEqual([B, C, D].sort(), [3, 4, 4]);
});

test("scenario 25: with fairness, what A does not need goes to the others", async (t) => {
  const it = await scenario(t, fair);
  await it.stage("2@A 10@B 10@C 10@D");
  t.is((await it.tick()).admitted, 12);
  const { A, B, C, D } = await it.inFlightBy();
  t.is(A, 2);
  t.deepEqual([B, C, D].sort(), [3, 3, 4]);
});

test("scenario 25: with fairness, only A, its cap shrunk to 1, nothing in flight", async (t) => {
  const it = await scenario(t, fair);
  const hands = await it.hands();
  await it.stage("5@A", {}, once);
  await it.tickNow();
  await hands.end(5, "badly");
  await it.stage("5@A", {}, once);
  await it.tickNow();
  await hands.end(5, "badly");
  t.is((await limiter(it)).current_max, 1);
  await it.stage("10@A");
  t.is((await it.tickNow()).admitted, 5);
});

test("scenario 25: a throttle beside it takes tokens for what went", async (t) => {
  const it = await scenario(t, {
    gates: [
      adaptiveConcurrency<Ctx>({ initialMax: 3, targetLagMs: 500 }),
      throttle<Ctx>({ rate: 10, per: "1 hour" }),
    ],
  });
  await it.stage("10@k");
  const pass = await it.tick();
  t.is(pass.admitted, 3);
  t.deepEqual(pass.denied, { adaptive_concurrency_full: 1 });
  t.true(Math.abs((await it.limiter("throttle")).tokens - 7) < 0.01);
});

test("scenario 25: one cap over several partitions of an account", async (t) => {
  const it = await scenario(t, {
    gates: [adaptiveConcurrency<Ctx>({ initialMax: 6, targetLagMs: 60_000, scope: (ctx) => ctx.account })],
  });
  const hands = await it.hands();
  await it.stage("10@a 10@b 10@c", { account: "x" }, once);
  t.is((await it.tickNow()).admitted, 6);
  t.deepEqual(await it.inFlightBy(), { a: 2, b: 2, c: 2 });
  await hands.end(1, "badly", "a");
  t.is(await cap(it, "x"), 3);
});
