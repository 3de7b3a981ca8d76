// `take` draws tokens from buckets, also from those that no job has used yet.
import test from "ava";
import { ArgumentError } from "../../src/errors.ts";
import { concurrency, throttle } from "../../src/index.ts";
import { type Ctx, policyOf, scenario } from "../helpers/scenario.ts";

const hourly = (rate: number) => throttle<Ctx>({ rate, per: "1 hour" });
const gates = [
  hourly(2),
  throttle<Ctx>({ name: "account", scope: (ctx) => ctx.account, rate: 2, per: "1 hour" }),
  throttle<Ctx>({ name: "all", scope: "policy", rate: 2, per: "1 hour" }),
  throttle<Ctx>({ name: "window", window: "sliding", rate: 2, per: "1 hour" }),
  concurrency<Ctx>({ max: 5 }),
];

for (const [gate, key] of [
  ["throttle", "new"],
  ["account", "new"],
  ["account", ""],
  ["all", undefined],
  ["window", "new"],
] as const) {
  const what = key === undefined ? "over the policy" : `of key ${JSON.stringify(key)}`;
  test(`a new bucket ${what} starts full, gate ${gate}`, async (t) => {
    const it = await scenario(t, { gates });
    const take = () => it.utils.take({ policy: "p", gate, key });
    t.deepEqual(await take(), { taken: true, retryAt: null });
    t.true((await take()).taken);
    const { taken, retryAt } = await take();
    t.false(taken);
    t.true(retryAt !== null && retryAt > new Date());
  });
}

test("a limit that was raised before fills the bucket that take makes", async (t) => {
  const it = await scenario(t, { gates });
  const account = { policy: "p", gate: "account", key: "new" };
  await it.utils.setLimit({ ...account, set: { rate: 5 } });
  t.true((await it.utils.take({ ...account, cost: 5 })).taken);
  t.false((await it.utils.take(account)).taken);
});

test("jobs that come later share the bucket that take has made", async (t) => {
  const it = await scenario(t, { gates: [hourly(3)] });
  t.true((await it.utils.take({ policy: "p", gate: "throttle", key: "a", cost: 2 })).taken);
  await it.stage("3@a");
  t.is((await it.tickNow()).admitted, 1);
});

test("a bucket that no job uses gets the numbers of a new definition, and keeps what it had", async (t) => {
  const it = await scenario(t, { gates: [hourly(2)] });
  const take = (cost: number) => it.utils.take({ policy: "p", gate: "throttle", key: "a", cost });
  t.true((await take(1)).taken);
  await it.makeUtils([policyOf("p", { gates: [hourly(10)] })]);
  t.false((await take(2)).taken, "a higher capacity is not filled by the change");
  const [{ rate }] = await it.rows("select rate from dispatch_policy.limiters where gate = 'throttle'");
  t.is(rate, 10);
  t.true((await take(1)).taken);
});

test("a bucket whose numbers depend on the job: the error names the ways out, until a job has had the key", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: (ctx) => ctx.rate, per: "1 hour" })] });
  const take = () => it.utils.take({ policy: "p", gate: "throttle", key: "a" });
  const error = await t.throwsAsync(take(), { instanceOf: ArgumentError });
  t.regex(
    error.message,
    /take: key is 'a'.*numbers of gate 'throttle' depend on the job\. Add a job .*constant numbers/,
  );
  await it.stage("1@a", { rate: 2 });
  t.is((await it.tickNow()).admitted, 1);
  t.true((await take()).taken);
  t.false((await take()).taken);
});

test("a gate that became a throttle is none for a key whose limiter is still of the earlier kind", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ name: "it", max: 5 })] });
  await it.stage("1@a");
  t.is((await it.tickNow()).admitted, 1);
  const byJob = throttle<Ctx>({ name: "it", rate: (ctx) => ctx.rate, per: "1 hour" });
  await it.makeUtils([policyOf("p", { gates: [byJob] })]);
  await t.throwsAsync(it.utils.take({ policy: "p", gate: "it", key: "a" }), {
    instanceOf: ArgumentError,
    message: /gate 'it' of policy 'p' is no throttle for this key yet\. Add a job with the key first$/,
  });
});

test("a key that does not fit the gate is refused, and makes no bucket", async (t) => {
  const it = await scenario(t, { gates });
  const [{ n: before }] = await it.rows("select count(*)::int as n from dispatch_policy.limiters");
  for (const [options, message] of [
    [{ gate: "all", key: "a" }, /key is 'a', expected none: gate 'all' counts over the whole policy/],
    [{ gate: "throttle" }, /key is null, expected a scope key: gate 'throttle' has a bucket for each/],
    [{ gate: "throttle", key: "x".repeat(1025) }, /1025 bytes/],
    [{ gate: "concurrency", key: "a" }, /gate 'concurrency' of policy 'p' is no throttle, expected one of: /],
  ] as const)
    await t.throwsAsync(it.utils.take({ policy: "p", ...options }), { instanceOf: ArgumentError, message });
  const [{ n: after }] = await it.rows("select count(*)::int as n from dispatch_policy.limiters");
  t.is(after, before);
});
