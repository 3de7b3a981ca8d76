// A shadow gate decides and counts, and holds nothing back.
import test, { type ExecutionContext } from "ava";
import {
  adaptive,
  calendar,
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  MONTH,
  sliding,
  smooth,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";

const LIMIT = 7;
/** So slow that no token comes back while a test runs. */
const SLOW = { per: 1e6 };
const START = Date.UTC(2100, 0, 1);

const shadow = (gate: TestGate): TestGate => ({ ...gate, shadow: true });
const at = (seconds: number) => new Date(START + seconds * 1000);

/** Routes and admits, so many seconds after the start. */
async function pass(it: Engine, seconds = 0, claim = 50) {
  await it.pool.query("select dispatch_policy_internal._route($1, $2, 10000)", [it.policy, at(seconds)]);
  return it.admit({ now: at(seconds), claim });
}

/** How many jobs each shadow gate would have held back. */
async function denied(it: Engine): Promise<Record<string, number>> {
  const sums: Record<string, number> = {};
  for (const { shadow_denied } of await it.table("activity").all())
    for (const [gate, jobs] of Object.entries<number>(shadow_denied)) sums[gate] = (sums[gate] ?? 0) + jobs;
  return sums;
}

const world = (t: ExecutionContext, gates: readonly TestGate[], more: Partial<EngineOptions> = {}) =>
  engine(t, { gates, ...more });

const GATES: Record<string, readonly [gate: TestGate, wouldDeny: number]> = {
  throttle: [throttle(LIMIT, SLOW), 13],
  "throttle of rate 0": [throttle(0, { ...SLOW, burst: 5 }), 20],
  "throttle over the policy": [throttle(LIMIT, { ...SLOW, scope: "policy" }), 13],
  "sliding window": [sliding(LIMIT, SLOW), 13],
  "calendar window": [calendar(LIMIT, MONTH), 13],
  "evenly spaced throttle": [smooth(LIMIT, SLOW), 19],
  concurrency: [concurrency(LIMIT), 13],
  "concurrency of 0": [concurrency(0), 20],
  "concurrency over a key": [concurrency(LIMIT, { scope: () => "key" }), 13],
  "concurrency over the policy": [concurrency(LIMIT, { scope: "policy" }), 13],
  "adaptive concurrency": [adaptive(LIMIT), 13],
};

for (const [name, [gate, wouldDeny]] of Object.entries(GATES)) {
  test(`a shadow ${name} lets all go, and counts those that it would have held back`, async (t) => {
    const it = await world(t, [shadow(gate)]);
    await it.stage(Array(20).fill("a"));
    t.like(await pass(it), { admitted: 20, denied: {} });
    t.deepEqual(await denied(it), { [gate.name]: wouldDeny });
    t.like(await it.partition("a"), { denied_reason: null, blocked_on: null, staged: 0 });
    const { tokens, in_flight } = await it.limiter(gate.name);
    t.true(tokens === null || tokens >= 0, "a bucket does not go below empty");
    t.is(in_flight, gate.kind === "throttle" ? 0 : 20);
    t.is(await it.wrongCounters(), 0);
    await it.finish(await it.inFlight());
    const left = await it.leftovers();
    t.deepEqual(left, {
      staged: 0,
      arrivals: 0,
      in_flight: 0,
      counters: 0,
      reserved: 0,
      notes: 0,
      blocked: 0,
    });
  });
}

test("a shadow bucket refills: a job that finds a token is not counted, one that finds none is", async (t) => {
  const it = await world(t, [shadow(throttle(2, { per: 10 }))]);
  const after = async (seconds: number, jobs: number) => {
    await it.stage(Array(jobs).fill("a"));
    t.is((await pass(it, seconds)).admitted, jobs);
    return [(await denied(it)).throttle ?? 0, (await it.limiter("throttle")).tokens];
  };
  t.deepEqual(await after(0, 1), [0, 1]);
  t.deepEqual(await after(0, 3), [2, 0]);
  t.deepEqual(await after(4, 1), [3, 0.8]);
  t.deepEqual(await after(5, 1), [3, 0]);
  t.deepEqual(await after(15, 3), [4, 0]);
});

test("jobs pass a shadow bucket in their order: from the first that finds too little on, all count", async (t) => {
  const it = await world(t, [shadow(throttle(5, SLOW))]);
  for (const [priority, cost] of [2, 2, 2, 1].entries()) await it.stage("a", { priority, cost });
  t.is((await pass(it)).admitted, 4);
  t.deepEqual(await denied(it), { throttle: 2 });
  t.is((await it.limiter("throttle")).tokens, 1);
});

test("a job dearer than a full shadow bucket goes as through a real one, and leaves a debt", async (t) => {
  const it = await world(t, [shadow(throttle(2, { per: 10 }))]);
  await it.stage("a", { cost: 5 });
  await pass(it);
  t.deepEqual(await denied(it), {});
  t.is((await it.limiter("throttle")).tokens, -3);
  await it.stage("a", { cost: 0 });
  t.is((await pass(it, 1)).admitted, 1);
  t.deepEqual(await denied(it), { throttle: 1 });
});

test("jobs of several partitions pass a shared shadow gate in fair order", async (t) => {
  const it = await world(t, [shadow(throttle(3, { ...SLOW, scope: "policy" })), shadow(concurrency(1))]);
  await it.stage(["a", "a", "a", "b"]);
  await pass(it);
  t.deepEqual(await denied(it), { throttle: 1, concurrency: 2 });
});

test("a real gate beside a shadow gate holds jobs back, and the shadow gate counts those that go", async (t) => {
  const it = await world(t, [
    concurrency(2),
    shadow(throttle(1, SLOW)),
    shadow(concurrency(9, { name: "wide" })),
  ]);
  await it.stage(Array(5).fill("a"));
  t.like(await pass(it), { admitted: 2, denied: { concurrency_full: 1 } });
  t.deepEqual(await denied(it), { throttle: 1 });
  await it.finish((await it.inFlight()).slice(0, 1));
  t.like(await pass(it, 1), { admitted: 1, denied: { concurrency_full: 1 } });
  t.deepEqual(await denied(it), { throttle: 2 });
});

test("a gate that becomes real counts what is in flight, and what was spent", async (t) => {
  const gates = [concurrency(3), throttle(4, SLOW)];
  const it = await world(t, gates.map(shadow));
  await it.stage(Array(6).fill("a"));
  t.is((await pass(it)).admitted, 6);
  await it.stage(["a", "b"], { gates });
  t.like(await pass(it), { admitted: 1, denied: { concurrency_full: 1 } });
  await it.finish((await it.inFlight("a")).slice(0, 5));
  t.like(await pass(it, 1), { admitted: 0, denied: { throttle_empty: 1 } });
  t.like(await pass(it, 1e6 / 4 + 1), { admitted: 1 });
});

test("a gate that becomes a shadow lets those go that wait for it", async (t) => {
  const gates = [concurrency(1), throttle(2, { ...SLOW, scope: "policy" })];
  const it = await world(t, gates);
  await it.stage(["a", "a", "b", "b", "c"]);
  t.is((await pass(it)).admitted, 2);
  await it.stage(["a", "b", "c"], { gates: gates.map(shadow) });
  t.is((await pass(it, 1)).admitted, 6);
  t.deepEqual(await denied(it), { concurrency: 5, throttle: 6 });
});

test("it lets also those go who are more than one step of the router wakes", async (t) => {
  const halted = throttle(0, { ...SLOW, scope: "policy" });
  const it = await world(t, [halted]);
  const keys = Array.from({ length: 1100 }, (_, n) => `k${n}`);
  await it.stage(keys);
  for (let left = keys.length; left > 0; left -= 550) t.is((await pass(it, 0, 550)).admitted, 0);
  t.is(await it.table("partitions").count({ blocked_on: (its) => `${its} is not null` }), 1100);
  await it.stage("k0", { gates: [shadow(halted)] });
  let admitted = 0;
  for (let n = 1; n <= 6; n++) admitted += (await pass(it, n, 550)).admitted;
  t.is(admitted, 1101);
});

test("an operator's numbers count for a shadow gate, and hold nothing back", async (t) => {
  const it = await world(t, [shadow(concurrency(9)), shadow(throttle(9, SLOW))]);
  for (const [gate, set] of [
    ["concurrency", { max: 0 }],
    ["throttle", { rate: 0 }],
  ] as const)
    await it.pool.query("select dispatch_policy.set_limit('p', $1, $2)", [gate, JSON.stringify(set)]);
  await it.stage(["a", "a"]);
  t.like(await pass(it), { admitted: 2, denied: {} });
  t.deepEqual(await denied(it), { concurrency: 2, throttle: 2 });
});

test("a job that an operator admits past the gates is no would-be denial", async (t) => {
  const it = await world(t, [shadow(concurrency(0)), shadow(throttle(0, SLOW))]);
  await it.stage(["a", "a"]);
  t.is(await it.number("select changed from dispatch_policy.admit('p', 2)"), 2);
  t.deepEqual(await denied(it), {});
});

test("a policy that drops what gates deny drops nothing for a shadow gate", async (t) => {
  const it = await world(t, [shadow(concurrency(1))]);
  await it.table("policies").set({ when_busy: "skip" });
  await it.stage(["a", "a", "a"]);
  t.is((await pass(it)).admitted, 3);
  t.is(await it.table("events").count(), 0);
});

test("would-be denials are folded into the minute and the totals, by gate", async (t) => {
  const it = await world(t, [shadow(concurrency(1)), shadow(throttle(2, SLOW))]);
  await it.stage(["a", "a", "a"]);
  await pass(it);
  await it.number("select dispatch_policy_internal._fold_activity(1000)");
  await it.stage(["a", "a", "a"]);
  await pass(it);
  await it.number("select dispatch_policy_internal._fold_activity(1000)");
  const expected = { concurrency: 5, throttle: 4 };
  t.deepEqual((await it.table("minutes").one({ minute: "-infinity" })).shadow_denied, expected);
  const minutes = await it.pool.query("select shadow_denied from dispatch_policy.minutes where minute = $1", [
    at(0),
  ]);
  t.deepEqual(minutes.rows, [{ shadow_denied: expected }]);
});
