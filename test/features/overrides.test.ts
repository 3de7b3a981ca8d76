// A rate is in force from the beginning of an override to its end, and brings nothing for the time before.
import test, { type ExecutionContext } from "ava";
import { ArgumentError, adaptiveConcurrency, concurrency, throttle } from "../../src/index.ts";
import { type Ctx, type Scenario, scenario } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

async function admittedAt(it: Scenario, ...seconds: readonly number[]): Promise<number[]> {
  const counts: number[] = [];
  for (const second of seconds) counts.push((await it.tick(second)).admitted);
  return counts;
}

test("a higher rate counts from its beginning", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 10, per: "1 minute" })] });
  await it.stage("100@k");
  t.deepEqual(await admittedAt(it, 0), [10]);
  await it.utils.setLimit({ policy: "p", gate: "throttle", set: { rate: 60 }, from: it.at(30) });
  t.deepEqual(await admittedAt(it, 30, 31), [5, 1], "30 s at 10 a minute, then 1 a second");
});

test("a halt brings nothing for the time it held", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 60, per: "1 minute" })] });
  await it.stage("200@k");
  t.deepEqual(await admittedAt(it, 0), [60]);
  await it.utils.setLimit({
    policy: "p",
    gate: "throttle",
    set: { rate: 0 },
    from: it.at(0),
    until: it.at(30),
  });
  t.deepEqual(await admittedAt(it, 1, 15, 29.9, 30, 33), [0, 0, 0, 0, 3]);
});

test("a lower rate over all of a policy, and its end", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ scope: "policy", rate: 60, per: "1 minute" })] });
  await it.stage("200@k");
  t.deepEqual(await admittedAt(it, 0), [60]);
  await it.utils.setLimit({
    policy: "p",
    gate: "throttle",
    set: { rate: 1 },
    from: it.at(0),
    until: it.at(60),
  });
  t.deepEqual(await admittedAt(it, 10, 30, 49), [0, 0, 0]);
  t.deepEqual(
    await admittedAt(it, 62),
    [3],
    "one of the minute at one a minute, two of two seconds at one a second",
  );
});

test("overrides of one key and of the whole gate, nobody looking while they came and went", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 60, per: "1 minute" })] });
  await it.stage("60@k 60@j");
  t.deepEqual(await admittedAt(it, 0), [120]);
  await it.stage("60@k 60@j");
  const limit = { policy: "p", gate: "throttle" };
  await it.utils.setLimit({ ...limit, set: { rate: 0 }, from: it.at(10), until: it.at(30) });
  await it.utils.setLimit({ ...limit, key: "k", set: { rate: 30 }, from: it.at(20), until: it.at(40) });
  t.deepEqual(await admittedAt(it, 45), [50]);
  t.deepEqual(await it.inFlightBy(), { j: 60 + 25, k: 60 + 25 });
});

// By the real clock, at which an override without `from` begins: the last pass before it was an hour ago.

const HOUR_AGO = -3600;

/** Forty jobs of each key due long since, and a pass an hour ago. */
async function hourAgo(t: ExecutionContext, gate: Parameters<typeof throttle<Ctx>>[0]): Promise<Scenario> {
  const it = await scenario(t, { gates: [throttle<Ctx>(gate)] }, { clock: "now" });
  await it.stage("40@k", {}, { runAt: it.at(-86_400) });
  await it.tick(HOUR_AGO);
  return it;
}

test("a rate that is raised at once brings nothing for the time before", async (t) => {
  const it = await hourAgo(t, { rate: 2, per: "1 hour", burst: 5 });
  await it.utils.setLimit({ policy: "p", gate: "throttle", set: { rate: 100, burst: 100 } });
  t.is((await it.tickNow()).admitted, 2, "an hour at two an hour");
});

test("a rate is raised for one key, and taken back", async (t) => {
  const it = await hourAgo(t, { rate: 2, per: "1 hour", burst: 5 });
  await it.utils.setLimit({ policy: "p", gate: "throttle", key: "k", set: { rate: 100, burst: 100 } });
  await it.utils.clearLimit({ policy: "p", gate: "throttle", key: "k" });
  t.is((await it.tickNow()).admitted, 2);
  t.deepEqual(await it.utils.limits(), []);
});

test("a halt that is taken back brought nothing", async (t) => {
  const it = await hourAgo(t, { rate: 10, per: "1 hour" });
  const halt = { policy: "p", gate: "throttle", set: { rate: 0 } };
  await it.utils.setLimit({ ...halt, from: it.at(HOUR_AGO) });
  await it.utils.clearLimit({ policy: "p", gate: "throttle" });
  t.is((await it.tickNow()).admitted, 0);
});

test("an override that replaces another counts from its own beginning", async (t) => {
  const it = await hourAgo(t, { rate: 10, per: "1 hour" });
  const limit = { policy: "p", gate: "throttle" };
  await it.utils.setLimit({ ...limit, set: { rate: 0 }, from: it.at(HOUR_AGO) });
  await it.utils.setLimit({ ...limit, set: { rate: 1000 } });
  t.is((await it.tickNow()).admitted, 0);
  t.deepEqual(
    (await it.utils.limits()).map(({ override }) => override),
    [{ rate: 1000 }],
  );
});

test("other numbers of the policy bring nothing for the time of a halt", async (t) => {
  const it = await scenario(
    t,
    { gates: [throttle<Ctx>({ rate: ({ rate }) => rate, per: "1 hour" })] },
    { clock: "now" },
  );
  const long = { runAt: it.at(-86_400) };
  await it.stage("40@k", { rate: 10 }, long);
  await it.tick(HOUR_AGO);
  await it.utils.setLimit({ policy: "p", gate: "throttle", set: { rate: 0 }, from: it.at(HOUR_AGO) });
  await it.stage("1@k", { rate: 20 }, long);
  await it.tick(-60);
  await it.utils.clearLimit({ policy: "p", gate: "throttle" });
  t.is((await it.tickNow()).admitted, 0);
});

test("a halt takes nothing from a shared bucket either", async (t) => {
  const it = await scenario(
    t,
    { gates: [throttle<Ctx>({ scope: "policy", rate: 10, per: "1 hour" })] },
    { clock: "now" },
  );
  const long = { runAt: it.at(-86_400) };
  await it.stage("4@k", {}, long);
  t.is((await it.tickNow()).admitted, 4);
  await it.utils.setLimit({ policy: "p", gate: "throttle", set: { rate: 0 } });
  await it.stage("40@j", {}, long);
  t.is((await it.tickNow()).admitted, 0);
  t.is((await it.limiter("throttle")).available, 0);
  t.deepEqual((await it.utils.sweep()).repaired.blocked, 0);
  await it.utils.clearLimit({ policy: "p", gate: "throttle" });
  t.is((await it.tickNow()).admitted, 6);
});

test("an override for later leaves the one in force until then", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 10 })] });
  await it.stage("40@k");
  const limit = { policy: "p", gate: "concurrency" };
  await it.utils.setLimit({ ...limit, set: { max: 2 } });
  await it.utils.setLimit({ ...limit, set: { max: 5 }, from: it.at(60), until: it.at(90) });
  t.deepEqual(
    (await it.utils.limits()).map(({ override, from, until }) => ({ override, from, until })),
    [
      { override: { max: 2 }, from: null, until: it.at(60) },
      { override: { max: 5 }, from: it.at(60), until: it.at(90) },
    ],
  );
  t.deepEqual(await admittedAt(it, 0, 30, 60, 89, 90), [2, 0, 3, 0, 5]);
});

test("setting a higher burst again leaves the bucket as full as it is", async (t) => {
  const it = await hourAgo(t, { rate: 1, per: "1 hour" });
  const limit = { policy: "p", gate: "throttle", set: { rate: 30, burst: 30 } };
  await it.utils.setLimit({ ...limit, from: it.at(HOUR_AGO) });
  await it.utils.setLimit(limit);
  t.is(Math.floor((await it.limiter("throttle")).available), 30);
  await it.utils.setLimit({ ...limit, set: { rate: 31, burst: 31 } });
  t.is((await it.tickNow()).admitted, 30);
});

test("one that is over already is refused, and the one in force stays", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 10 })] });
  await it.stage("5@k");
  const limit = { policy: "p", gate: "concurrency" };
  await it.utils.setLimit({ ...limit, set: { max: 0 } });
  const until = new Date(Date.now() - 60_000);
  for (const from of [{}, { from: new Date(Date.now() - 90_000) }])
    await t.throwsAsync(it.utils.setLimit({ ...limit, set: { max: 1 }, ...from, until }), {
      instanceOf: ArgumentError,
      message: /set_limit: until is .*, expected a time to come: by the database's clock it is /,
    });
  t.deepEqual(
    (await it.utils.limits()).map(({ override }) => override),
    [{ max: 0 }],
  );
  t.is((await it.tickNow()).admitted, 0);
});

test("one of a key that nobody has had yet holds once somebody has; matched tells it from a misspelt one", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 10 })],
  });
  const limit = { policy: "p", gate: "account", key: "acme", set: { max: 2 } };
  t.deepEqual(await it.utils.setLimit(limit), { matched: 0, changed: 0, stored: true });
  t.like((await it.utils.limits())[0], { key: "acme", seen: false });
  await it.stage("5@acme 5@other");
  t.is((await it.tickNow()).admitted, 7);
  t.is((await it.limiter("account", "acme")).in_flight, 2);
  t.deepEqual(await it.utils.setLimit({ ...limit, set: { max: 3 } }), {
    matched: 1,
    changed: 1,
    stored: false,
  });
  t.like((await it.utils.limits())[0], { key: "acme", seen: true });
  t.is((await it.tickNow()).admitted, 1);
});

for (const [whom, target] of [
  ["its key", { key: "k" }],
  ["its context", { where: { account: "acme" } }],
  ["every key", {}],
] as const)
  test(`a limit of ${whom} that was raised before its first job fills its bucket`, async (t) => {
    const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 2, per: "1 hour" })] });
    await it.utils.setLimit({ policy: "p", gate: "throttle", ...target, set: { rate: 5 }, until: it.at(60) });
    await it.stage("9@k", { account: "acme" });
    t.deepEqual(await admittedAt(it, 0), [5]);
  });

test("a halt takes nothing from a bucket that is made meanwhile, and a limit that is raised later adds nothing", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 2, per: "1 hour" })] });
  const limit = { policy: "p", gate: "throttle" };
  await it.utils.setLimit({ ...limit, set: { rate: 0 }, until: it.at(60) });
  await it.utils.setLimit({ ...limit, set: { rate: 5 }, from: it.at(60) });
  await it.stage("9@k");
  t.deepEqual(await admittedAt(it, 0, 60), [0, 2]);
});

test("one for a while leaves those that begin after it", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 10 })] });
  await it.stage("40@k");
  const limit = { policy: "p", gate: "concurrency" };
  for (const [max, from, until] of [
    [5, 60, 90],
    [9, 20, 40],
    [1, 0, 30],
  ] as const)
    await it.utils.setLimit({ ...limit, set: { max }, from: it.at(from), until: it.at(until) });
  t.deepEqual(await admittedAt(it, 0, 20, 30, 60), [1, 0, 9, 0]);
  await it.finish(6);
  t.deepEqual(await admittedAt(it, 61), [1], "4 of 5 are left in flight");
});

test("clearing takes back what is in force and what is to come", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 10 })] });
  const limit = { policy: "p", gate: "concurrency" };
  await it.utils.setLimit({ ...limit, set: { max: 2 } });
  await it.utils.setLimit({ ...limit, set: { max: 5 }, from: it.at(60) });
  t.deepEqual(await it.utils.clearLimit(limit), { matched: 2, changed: 2 });
  t.deepEqual(await it.utils.clearLimit(limit), { matched: 0, changed: 0 });
  t.deepEqual(await it.utils.limits(), []);
});

test("a shorter window forgets nothing that the policy's own counts", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 5, per: "10 seconds", window: "sliding" })] });
  await it.stage("60@k");
  const limit = { policy: "p", gate: "throttle", set: { rate: 1, per: "1 second" } } as const;
  t.deepEqual(await admittedAt(it, 0), [5]);
  await it.utils.setLimit({ ...limit, from: it.at(1), until: it.at(3) });
  t.deepEqual(await admittedAt(it, 1.1, 3, 9.9), [1, 0, 0]);
});

test("an adaptive limit learns by the numbers in force", async (t) => {
  const gate = adaptiveConcurrency<Ctx>({ initialMax: 10, max: 10, targetLagMs: 600_000 });
  const it = await scenario(t, { gates: [gate] });
  await it.stage("40@k");
  await it.tickNow();
  const hands = await it.hands();
  const limit = { policy: "p", gate: "adaptive_concurrency" };
  const learnt = async () => (await it.limiter("adaptive_concurrency")).current_max;
  await it.utils.setLimit({ ...limit, set: { max: 20 } });
  await hands.end(1);
  t.is(await learnt(), 11);
  await it.utils.setLimit({ ...limit, set: { max: 20, targetLagMs: 0.001 } });
  await hands.end(1);
  t.is(await learnt(), 10, "95 % of 11");
});

test("clearing counts what is in force or to come", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 3 })] });
  const limit = { policy: "p", gate: "concurrency" };
  const minutes = (n: number) => new Date(Date.now() + n * 60_000);
  await it.utils.setLimit({ ...limit, set: { max: 1 }, from: minutes(1), until: minutes(5) });
  const earlier = (its: string) => `${its} - interval '10 minutes'`;
  await table(it.pool, "overrides").set({ from_at: earlier, until_at: earlier });
  t.deepEqual(await it.utils.clearLimit(limit), { matched: 0, changed: 0 });
  await it.utils.setLimit({ ...limit, set: { max: 2 }, until: minutes(5) });
  await it.utils.setLimit({ ...limit, set: { max: 1 }, from: minutes(9) });
  t.deepEqual(await it.utils.clearLimit(limit), { matched: 2, changed: 2 });
});
