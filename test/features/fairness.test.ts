import test from "ava";
import { concurrency, throttle } from "../../src/index.ts";
import { type Ctx, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const near = (value: number, expected: number, within: number) => Math.abs(value - expected) <= within;

/** Makes it so that a partition was admitted this much, at second 0. */
async function admittedBefore(it: Scenario, key: string, decayed: number): Promise<void> {
  await it.stage(`1@${key}`);
  await it.tick();
  await table(it.pool, "partitions").set({ decayed_admits: decayed, decayed_at: it.at(0) }, { key });
  await it.finish(1, key);
}

for (const via of VIAS) {
  test(`scenario 15: past admissions count half after a half-life (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    await it.stage("3@k1");
    t.is((await it.tick()).admitted, 3);
    t.is((await it.partition("k1")).decayed_admits, 3);
    await it.stage("1@k1");
    t.is((await it.tick(60)).admitted, 1);
    const { decayed_admits } = await it.partition("k1");
    t.true(near(decayed_admits, 2.5, 0.05), `${decayed_admits}`);
  });

  test(`scenario 15: aged in the table instead of by the clock (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    await it.stage("3@k1");
    await it.tickNow();
    t.true(near((await it.partition("k1")).decayed_admits, 3, 0.001));
    await table(it.pool, "partitions").set({ decayed_at: (its) => `${its} - interval '60 seconds'` });
    await it.stage("1@k1");
    await it.tickNow();
    const { decayed_admits } = await it.partition("k1");
    t.true(near(decayed_admits, 2.5, 0.05), `${decayed_admits}`);
  });

  test(`scenario 15: a partition may be idle for a year, again and again (${via})`, async (t) => {
    const it = await scenario(t, { gates: [concurrency({ max: 1 })] }, { via });
    const year = 365 * 86_400;
    await it.stage("1@k1");
    t.is((await it.tick()).admitted, 1);
    await it.stage("1@k1");
    t.is((await it.tick(year)).admitted, 0, "looked at, and full");
    await it.finish(1, "k1");
    t.is((await it.tick(2 * year)).admitted, 1);
    t.is((await it.partition("k1")).decayed_admits, 1);
  });

  test(`scenario 16: the cold partition goes first (${via})`, async (t) => {
    const it = await scenario(t, { tickAdmissionBudget: 10 }, { via });
    await admittedBefore(it, "hot", 100);
    await it.stage("10@hot 10@cold");
    t.is((await it.tick()).admitted, 10);
    t.deepEqual(await it.inFlightBy(), { cold: 10 });
  });

  test(`scenario 17: equal shares of the budget (${via})`, async (t) => {
    const it = await scenario(t, { tickAdmissionBudget: 10 }, { via });
    await it.stage("10@a 10@b 10@c 10@d 10@e");
    const pass = await it.tick();
    t.is(pass.admitted, 10);
    t.deepEqual(pass.denied, { tick_budget: 5 });
    t.deepEqual(await it.inFlightBy(), { a: 2, b: 2, c: 2, d: 2, e: 2 });
  });

  for (const [weights, budget, expected] of [
    [{ a: 3, b: 1 }, 40, { a: 30, b: 10 }],
    [{ a: 1, b: 3 }, 40, { a: 10, b: 30 }],
    [{ a: 5, b: 3, c: 2 }, 50, { a: 25, b: 15, c: 10 }],
    [{ a: 0.5, b: 0.25 }, 30, { a: 20, b: 10 }],
  ] as const) {
    const title = `${Object.values(weights).join(" : ")} of ${budget}`;
    test(`scenario 17: weighted shares, ${title} (${via})`, async (t) => {
      const it = await scenario(t, { tickAdmissionBudget: budget }, { via });
      for (const [key, weight] of Object.entries(weights)) await it.stage(`100@${key}`, { weight });
      t.is((await it.tick()).admitted, budget);
      t.deepEqual(await it.inFlightBy(), expected);
    });
  }

  test(`scenario 18: the whole budget for the only one that has work (${via})`, async (t) => {
    const it = await scenario(t, { tickAdmissionBudget: 8 }, { via });
    await it.stage("1@p1 1@p2 1@p3");
    await it.tick();
    await it.finish(3);
    await it.stage("100@p0");
    t.is((await it.tick()).admitted, 8);
    t.deepEqual(await it.inFlightBy(), { p0: 8 });
  });
}

test("scenario 16: the hot one gets what the cold one leaves", async (t) => {
  const it = await scenario(t, { tickAdmissionBudget: 10 });
  await admittedBefore(it, "hot", 100);
  await it.stage("10@hot 4@cold");
  await it.tick();
  t.deepEqual(await it.inFlightBy(), { cold: 4, hot: 6 });
});

test("scenario 16: what is hot cools down", async (t) => {
  const it = await scenario(t, { tickAdmissionBudget: 10, fairness: { halfLife: "10 seconds" } });
  await admittedBefore(it, "hot", 4);
  await it.stage("10@hot 10@cold");
  // 4 decays to 1 in two half-lives: hot's nth job stands behind cold's (n + 1)th
  await it.tick(20);
  const { hot, cold } = await it.inFlightBy();
  t.deepEqual(
    [hot, cold],
    [5, 5].map((n, i) => n + (hot === 5 ? 0 : i === 0 ? -1 : 1)),
  );
});

test("scenario 16: without fairness the past does not count", async (t) => {
  const it = await scenario(t, { tickAdmissionBudget: 10, fairness: null });
  await it.stage("50@hot");
  await it.tick();
  await it.tick();
  await it.finish(20);
  await it.stage("10@cold");
  await it.tick();
  t.is((await it.inFlight()).length, 10);
  t.true((await it.partition("hot")).decayed_admits <= 10 * 3);
});

test("scenario 17: shares under a cap that all share", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ scope: "policy", max: 12 }), throttle<Ctx>({ rate: 10_000, per: "1 minute" })],
  });
  await it.stage("100@a", { weight: 2 });
  await it.stage("100@b 100@c");
  const pass = await it.tick();
  t.is(pass.admitted, 12);
  t.deepEqual(await it.inFlightBy(), { a: 6, b: 3, c: 3 });
  t.deepEqual(pass.denied, { concurrency_full: 3 });
  await it.finish(3, "b");
  await it.finish(3, "c");
  t.is((await it.tick()).admitted, 6);
});

test("scenario 17: a share that its own cap cuts goes to the others, weights kept", async (t) => {
  const it = await scenario(t, {
    tickAdmissionBudget: 30,
    gates: [concurrency<Ctx>({ max: (ctx) => ctx.max })],
  });
  await it.stage("100@a", { weight: 10, max: 3 });
  await it.stage("100@b", { weight: 2, max: 100 });
  await it.stage("100@c", { weight: 1, max: 100 });
  await it.tick();
  t.deepEqual(await it.inFlightBy(), { a: 3, b: 18, c: 9 });
});

test("scenario 17: what a partition with a great weight has no jobs for goes to the others in fair order", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ scope: "policy", max: 3 })] });
  await it.stage("1@great", { weight: 5 });
  await it.stage("2@plain");
  await it.stage("1@small", { weight: 0.5 });
  t.is((await it.tick()).admitted, 3);
  t.deepEqual(
    await it.inFlightBy(),
    { great: 1, plain: 2 },
    "small's first is as far as plain's second, and later",
  );
});

test("scenario 17: over several ticks the shares even out", async (t) => {
  const it = await scenario(t, { tickAdmissionBudget: 7 });
  await it.stage("100@a 100@b 100@c 100@d 100@e");
  for (let n = 0; n < 10; n++) t.is((await it.tick()).admitted, 7);
  t.deepEqual(await it.inFlightBy(), { a: 14, b: 14, c: 14, d: 14, e: 14 });
});

test("scenario 17: two policies each have a budget of their own", async (t) => {
  const { policyOf } = await import("../helpers/scenario.ts");
  const it = await scenario(
    t,
    { tickAdmissionBudget: 10 },
    { others: [policyOf("q", { tickAdmissionBudget: 3 })] },
  );
  await it.stage("100@a 100@b");
  await it.utils.addJobs(
    Array.from({ length: 10 }, () => ({ identifier: "q", payload: { key: "a" } })) as never,
  );
  t.is((await it.utils.tick({ now: it.at(0) })).admitted, 13);
  t.deepEqual(await it.inFlightBy(), { a: 5, b: 5 });
});
