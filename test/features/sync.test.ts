// `sync`: a throttle goes down to what a partner says is left.
import test from "ava";
import { ArgumentError } from "../../src/errors.ts";
import { concurrency, rateLimitFromHeaders, throttle } from "../../src/index.ts";
import { type Ctx, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { until } from "../helpers/until.ts";

const MINUTE = { rate: 60, per: "1 minute" } as const;

/** So many seconds into the scenario a partner says what is left until when. */
async function says(it: Scenario, seconds: number, remaining: number, reset?: number) {
  const [row] = await it.rows(
    "select * from dispatch_policy.sync('p', 'throttle', $1, key => 'a', reset_at => $2, now => $3)",
    [remaining, reset === undefined ? null : it.at(reset), it.at(seconds)],
  );
  return [row.lowered, Math.round(row.tokens * 1000) / 1000];
}

for (const via of VIAS) {
  test(`scenario 41: a partner says that 3 are left, or 3 for half a minute, a bucket (${via})`, async (t) => {
    const it = await scenario(t, { gates: [throttle<Ctx>(MINUTE)] }, { via });
    await it.stage("100@a");
    t.deepEqual(await says(it, 0, 3), [true, 3]);
    t.is((await it.tick(0)).admitted, 3);
    t.is((await it.tick(2.1)).admitted, 2, "it gains on");
    t.deepEqual(await says(it, 10, 3, 40), [true, -27]);
    t.is((await it.tick(37.9)).admitted, 0);
    t.is((await it.tick(39.9)).admitted, 2);
    t.is((await it.tick(40.1)).admitted, 1, "three by the reset");
    t.is((await it.tick(42.1)).admitted, 2);
  });

  test(`scenario 41: the same of a sliding window, which lets them go at once (${via})`, async (t) => {
    const it = await scenario(t, { gates: [throttle<Ctx>({ ...MINUTE, window: "sliding" })] }, { via });
    await it.stage("100@a");
    await it.stage("40@a");
    await says(it, 0, 40);
    t.is((await it.tick(0)).admitted, 40);
    t.deepEqual(await says(it, 50, 5, 80), [false, 0], "it has no more");
    t.deepEqual(await says(it, 61, 5, 91), [true, 5]);
    t.is((await it.tick(61)).admitted, 5);
    t.is((await it.tick(90.9)).admitted, 0);
    t.is((await it.tick(91.1)).admitted, 55, "all is back but what went since");
  });
}

test("scenario 41: a calendar window is lowered until its boundary, whatever the partner says", async (t) => {
  const gates = [throttle<Ctx>({ rate: 60, per: "1 day", window: "calendar" })];
  const it = await scenario(t, { gates });
  await it.stage("100@a");
  t.deepEqual(await says(it, 0, 3, 86_400), [true, 3]);
  t.is((await it.tick(0)).admitted, 3);
  const { nextEligibleAt } = await it.tick(1);
  const midnight = Math.ceil(it.at(1).getTime() / 86_400_000) * 86_400_000;
  t.is(nextEligibleAt?.getTime(), midnight);
});

test("a throttle is never raised, and its debt is what it gains in its time, at most", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>(MINUTE)] });
  t.deepEqual(await says(it, 0, 1000), [false, 60], "a key that no job has had");
  t.deepEqual(await says(it, 0, 10), [true, 10]);
  t.deepEqual(await says(it, 0, 20), [false, 10]);
  t.deepEqual(await says(it, 0, 5, 0), [false, 10], "what it said is over");
  t.deepEqual(await says(it, 0, 5, -1), [false, 10]);
  t.deepEqual(await says(it, 0, 5, 86_400), [true, -60]);
  t.deepEqual(await says(it, 0, 0), [false, -60]);
});

test("a task tells what the partner's headers say, for its own key and for another", async (t) => {
  const gates = [
    throttle<Ctx>({ name: "account", scope: (ctx) => ctx.account, rate: 60, per: "1 day" }),
    concurrency<Ctx>({ max: 5 }),
  ];
  const it = await scenario(t, { gates });
  const answers: unknown[] = [];
  const task: Parameters<Scenario["worker"]>[0]["tasks"][string] = async (_payload, helpers) => {
    const headers = new Headers({ "x-ratelimit-remaining": "7", "x-ratelimit-limit": "60" });
    const { remaining, resetAt } = rateLimitFromHeaders(headers);
    const { dispatchPolicy } = helpers as { dispatchPolicy: NonNullable<typeof helpers.dispatchPolicy> };
    answers.push(await dispatchPolicy.sync({ gate: "account", remaining: remaining!, resetAt }));
    answers.push(await dispatchPolicy.sync({ gate: "account", key: "other", remaining: 9 }));
    const wrong = dispatchPolicy.sync({ gate: "concurrency", remaining: 9 });
    answers.push(await wrong.catch((error) => error));
  };
  await it.worker({ tasks: { p: task }, loop: false });
  await it.stage("1@a", { account: "acme" });
  t.is((await it.tickNow()).admitted, 1);
  await until("it has run", () => answers.length === 3);
  t.deepEqual(answers.slice(0, 2), [
    { lowered: true, tokens: 7 },
    { lowered: true, tokens: 9 },
  ]);
  t.true(answers[2] instanceof ArgumentError, String(answers[2]));
  t.is(Math.round((await it.limiter("account", "acme")).tokens), 7);
  t.deepEqual(await it.rows("select from dispatch_policy.audit where verb = 'sync'"), []);
});

test("a throttle that somebody has locked is not lowered, and the answer says so", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>(MINUTE)] });
  const app = await it.transaction();
  await app.query("select dispatch_policy.take('p', 'throttle', 'a')");
  const bucket = { policy: "p", gate: "throttle", key: "a" };
  t.deepEqual(await it.utils.sync({ ...bucket, remaining: 3 }), { lowered: false, tokens: null });
  await app.query("rollback");
  t.deepEqual(await it.utils.sync({ ...bucket, remaining: 3 }), { lowered: true, tokens: 3 });
});

test("a number or a time that is none is refused from SQL as well", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>(MINUTE)] });
  for (const [rest, message] of [
    ["'NaN', key => 'a'", /sync: remaining is NaN, expected 0 to 1e12/],
    ["-1, key => 'a'", /sync: remaining is -1, expected 0 to 1e12/],
    ["null, key => 'a'", /sync: remaining is null, expected 0 to 1e12/],
    ["1", /sync: key is null, expected a scope key/],
    ["1, key => 'a', reset_at => 'infinity'", /sync: reset_at is infinity, expected a time; leave it out if/],
  ] as const)
    await t.throwsAsync(it.rows(`select from dispatch_policy.sync('p', 'throttle', ${rest})`), { message });
});
