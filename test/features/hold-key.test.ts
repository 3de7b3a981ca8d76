// A hold of a gate's key: all partitions of an account stop, and go on by themselves.
import { EventEmitter } from "node:events";
import test from "ava";
import { concurrency, type PolicyEventMap, policyEvents, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, type Scenario, scenario } from "../helpers/scenario.ts";

const account = concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 5 });
const calls = throttle<Ctx>({ name: "calls", scope: (ctx) => ctx.account, rate: 100, per: "1 hour" });
const all = concurrency<Ctx>({ name: "all", scope: "policy", max: 5 });
const ACME = { policy: "p", gate: "account", key: "acme" } as const;
const MINUTE = { forMs: 60_000, reason: "429", by: "ana" };

/** Two partitions of account acme, and one of another. */
async function accounts(it: Scenario): Promise<void> {
  await it.stage("1@a 1@b", { account: "acme" });
  await it.stage("1@c", { account: "other" });
}

for (const [gate, of, reason] of [
  ["account", account, "max_zero"],
  ["calls", calls, "rate_zero"],
] as const) {
  test(`a hold of a key stops the partitions of the account until its end (${gate})`, async (t) => {
    const it = await scenario(t, { gates: [of] });
    await accounts(it);
    await it.tick(-30);
    await it.finish(3);
    await accounts(it);
    const result = await it.utils.hold({ policy: "p", gate, key: "acme", ...MINUTE });
    t.deepEqual(result, { matched: 1, changed: 1, stored: false });
    t.is((await it.tick(0)).admitted, 1);
    t.deepEqual(await it.inFlightBy(), { c: 1 });
    const explained = await it.utils.explain({ policy: "p", partition: "a" });
    t.is(explained.reason, reason);
    t.regex(
      explained.sentence,
      new RegExp(`Gate "${gate}" of acme is on hold by ana \\(429\\) until 20[0-9-]+T[0-9:.]+\\+00:00\\.`),
    );
    t.notRegex(explained.sentence, /set this limit/);
    t.is((await it.tick(120)).admitted, 2);
    t.deepEqual(await it.inFlightBy(), { a: 1, b: 1, c: 1 });
  });
}

for (const [gate, zero, set] of [
  ["account", "max_zero", { max: 0 }],
  ["calls", "rate_zero", { rate: 0 }],
] as const) {
  test(`of several gates without room, the one that lets go last is named (${gate})`, async (t) => {
    const own = throttle<Ctx>({ name: "own", rate: 1, per: "2 hours" });
    const it = await scenario(t, { gates: [account, calls, own] });
    const keys = ["minute", "hours", "ever"];
    const stage = async () => {
      for (const key of keys) await it.stage(`1@${key}`, { account: key });
    };
    await stage();
    t.is((await it.tick(0)).admitted, 3);
    const hour = 3_600_000;
    await it.utils.hold({ policy: "p", gate, key: "minute", forMs: hour / 60 });
    await it.utils.hold({ policy: "p", gate, key: "hours", forMs: 5 * hour });
    await it.utils.setLimit({ policy: "p", gate, key: "ever", set });
    await stage();
    t.is((await it.tick(0)).admitted, 0);
    const seen = new Map((await it.utils.partitions()).map((one) => [one.partition, one.reason]));
    const named = [];
    for (const partition of keys) {
      const { reason, gate, nextAt, asOf, gates } = await it.utils.explain({ policy: "p", partition });
      t.is(seen.get(partition), "throttle_empty", "a list names the first, from narrow to broad");
      t.deepEqual(gates.find((one) => one.gate === gate)?.nextAt, nextAt);
      named.push([reason, gate, nextAt && Math.round((+nextAt - +asOf) / hour)]);
    }
    t.deepEqual(named, [
      ["throttle_empty", "own", 2],
      [zero, gate, 5],
      [zero, gate, null],
    ]);
  });
}

test("at its end the limit counts again that an operator has set for the key", async (t) => {
  const it = await scenario(t, { gates: [account] });
  await it.utils.setLimit({ policy: "p", gate: "account", key: "acme", set: { max: 1 } });
  await it.utils.hold({ policy: "p", gate: "account", key: "acme", ...MINUTE });
  await accounts(it);
  t.is((await it.tick(0)).admitted, 1);
  t.is((await it.tick(120)).admitted, 1);
  t.is((await it.limiter("account", "acme")).in_flight, 1);
  await it.utils.clearLimit({ policy: "p", gate: "account", key: "acme" });
  t.is((await it.tick(121)).admitted, 1);
});

test("of two holds the one that ends later counts, and a key has one", async (t) => {
  const it = await scenario(t, { gates: [account] });
  const target = { policy: "p", gate: "account", key: "acme" };
  const [first, later] = [new Date(Date.now() + 600_000), new Date(Date.now() + 900_000)];
  const holds = async () =>
    (await it.utils.limits()).map(({ key, hold, override, until, by, reason, seen }) => {
      return { key, hold, override, until, by, reason, seen };
    });
  t.deepEqual(await it.utils.hold({ ...target, until: first, by: "ana", reason: "429" }), {
    ...{ matched: 0, changed: 0, stored: true },
  });
  await it.utils.hold({ ...target, forMs: 1000, by: "bo" });
  const one = { key: "acme", hold: true, override: { max: 0 }, seen: false };
  t.deepEqual(await holds(), [{ ...one, until: first, by: "ana", reason: "429" }]);
  await it.utils.hold({ ...target, until: later, by: "bo", reason: "503" });
  t.deepEqual(await holds(), [{ ...one, until: later, by: "bo", reason: "503" }]);
});

test("a hold that grows while it is in force ends at the later time", async (t) => {
  const it = await scenario(t, { gates: [account] });
  const target = { policy: "p", gate: "account", key: "acme" };
  await accounts(it);
  await it.utils.hold({ ...target, until: it.at(60) });
  t.is((await it.tick(0)).admitted, 1);
  await it.utils.hold({ ...target, until: it.at(120) });
  t.is((await it.tick(61)).admitted, 0);
  t.is((await it.tick(121)).admitted, 2);
});

for (const [how, end] of [
  ["setLimit", (it: Scenario) => it.utils.setLimit({ ...ACME, set: { max: 1 } })],
  ["clearLimit", (it: Scenario) => it.utils.clearLimit(ACME)],
] as const) {
  test(`${how} of the key ends a hold`, async (t) => {
    const it = await scenario(t, { gates: [account] });
    await accounts(it);
    await it.utils.hold({ ...ACME, forMs: 600_000 });
    t.is((await it.tick(0)).admitted, 1);
    await end(it);
    t.is((await it.tick(1)).admitted, how === "setLimit" ? 1 : 2);
  });
}

for (const [gate, of] of [
  ["account", concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 5, shadow: true })],
  [
    "calls",
    throttle<Ctx>({ name: "calls", scope: (ctx) => ctx.account, rate: 100, per: "1 hour", shadow: true }),
  ],
] as const) {
  test(`a hold of a shadow gate's key stops it, and the gate is a shadow again at its end (${gate})`, async (t) => {
    const it = await scenario(t, { gates: [of] });
    await it.utils.hold({ policy: "p", gate, key: "acme", ...MINUTE });
    await accounts(it);
    t.is((await it.tick(0)).admitted, 1);
    t.deepEqual(await it.inFlightBy(), { c: 1 });
    const [explained] = (await it.utils.explain({ policy: "p", partition: "a" })).gates;
    t.like(explained, { gate, shadow: false, lacks: true });
    t.deepEqual(
      (await it.utils.limits()).map(({ override, hold }) => ({ override, hold })),
      [{ override: gate === "calls" ? { rate: 0 } : { max: 0 }, hold: true }],
    );
    await it.stage("9@a", { account: "acme" });
    t.is((await it.tick(120)).admitted, 11, "more than its max");
  });
}

test("a gate over the policy is held without a key", async (t) => {
  const it = await scenario(t, { gates: [all] });
  await it.stage("2@a");
  await it.utils.setLimit({ policy: "p", gate: "all", set: { max: 1 } });
  await it.utils.hold({ policy: "p", gate: "all", ...MINUTE });
  t.is((await it.tick(0)).admitted, 0);
  t.regex((await it.utils.explain({ policy: "p", partition: "a" })).sentence, /Gate "all" is on hold by ana/);
  t.is((await it.tick(120)).admitted, 1);
});

test("a task holds its own account, and it is told and recorded", async (t) => {
  const it = await scenario(t, { gates: [account] });
  const told: PolicyEventMap["dispatchPolicy:hold"][] = [];
  const events = new EventEmitter();
  policyEvents(events).on("dispatchPolicy:hold", (event) => told.push(event));
  await it.worker({
    events: events as never,
    tasks: {
      p: (_payload, helpers) =>
        helpers.dispatchPolicy!.hold({ gate: "account", forMs: 600_000, reason: "429" }),
    },
  });
  const [job] = await it.stage("1@a", { account: "acme" });
  await until("it is told", () => told.length > 0);
  const [row] = await it.rows("select partition, gate, scope_key, by, reason from dispatch_policy.audit");
  t.deepEqual(row, { partition: null, gate: "account", scope_key: "acme", by: told[0]!.by, reason: "429" });
  const hold = { policy: "p", partition: null, gate: "account", key: "acme", until: null, forMs: 600_000 };
  t.like(told[0], { ...hold, matched: 1, changed: 1, reason: "429" });
  t.regex(told[0]!.by!, /^job [0-9]+$/);
  t.is(job!.staged, true);
});

test("a hold needs a partition, or a gate and its key", async (t) => {
  const it = await scenario(t, { gates: [account, all] });
  const hold = (target: object) => it.utils.hold({ policy: "p", forMs: 1000, ...target } as never);
  const REFUSED: readonly [object, string][] = [
    [{ gate: "account" }, "hold: key is null, expected a scope key of gate 'account', which counts by key"],
    [{ gate: "all", key: "x" }, "hold: key is 'x', expected none: gate 'all' counts over the policy"],
    [{ gate: "none", key: "x" }, "policy 'p' has no gate 'none'; its gates: 'account', 'all'"],
  ];
  for (const [target, message] of REFUSED) await t.throwsAsync(hold(target), { message }, message);
  await t.throwsAsync(hold({ gate: "account", partition: "a", key: "x" }), { message: /partition/ });
  await t.throwsAsync(hold({}), { message: /^hold: partition is missing/ });
  await t.throwsAsync(
    it.rows(`select dispatch_policy.hold('p', 'a', gate => 'account', "for" => '1 second')`),
    {
      message:
        "dispatch_policy: hold: partition is 'a', gate is 'account', key is null, expected a partition, or a gate and its key",
      code: "DPARG",
    },
  );
  t.deepEqual(await it.utils.limits(), []);
});
