// What the release of a job charges or returns that has said what it cost.
import test, { type ExecutionContext } from "ava";
import {
  calendar,
  concurrency,
  type Engine,
  engine,
  sliding,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";

const MINUTE = { per: 60 };
const START = Date.UTC(2100, 0, 1);
const at = (seconds: number) => new Date(START + seconds * 1000);

/** Times are the test's: a pass, and the release of the oldest job in flight, at so many seconds. */
function timed(it: Engine) {
  const pass = async (seconds: number) => {
    await it.pool.query("select dispatch_policy_internal._route($1, $2, 10000)", [it.policy, at(seconds)]);
    return (await it.admit({ now: at(seconds) })).admitted;
  };
  const settle = async (seconds: number, ...costs: number[]) => {
    const jobs = (await it.inFlight()).slice(0, costs.length);
    const ends = jobs.map((job, n) => ({ job, ok: true, settled: { cost: costs[n] } }));
    const { rows } = await it.pool.query(
      "select left_ids, may_end from dispatch_policy_internal._release($1, $2)",
      [JSON.stringify(ends), at(seconds)],
    );
    return rows[0];
  };
  const tokens = async (seconds: number, gate = "throttle", key?: string) => {
    const { id } = await it.limiter(gate, key);
    const [{ left }] = await inside(
      it.pool,
      "select coalesce(tokens, shadow_tokens) as left from dispatch_policy_internal._rooms_of($1, $2, false)",
      [[id], at(seconds)],
    );
    return Math.round(left * 1e6) / 1e6;
  };
  return { pass, settle, tokens };
}

async function world(t: ExecutionContext, gate: TestGate, ...others: TestGate[]) {
  const it = await engine(t, { gates: [gate, ...others] });
  return { it, ...timed(it) };
}

test("the difference is charged or returned, and no bucket gets more than it can have", async (t) => {
  const { it, pass, settle, tokens } = await world(t, throttle(60, MINUTE));
  await it.stage(["a", "a", "a", "a"], { cost: 10 });
  t.is(await pass(0), 4);
  t.is(await tokens(0), 20);
  await settle(0, 17);
  t.is(await tokens(0), 13, "7 more");
  await settle(0, 3, 14);
  t.is(await tokens(0), 16, "7 back, 4 more");
  await settle(42, 0);
  t.is(await tokens(42), 60, "16 and 42 that came, and 2 of the 10 that it has back");
  t.is(await it.wrongCounters(), 0);
});

test("a debt is what the bucket gains in its time, at most, and is paid as any other", async (t) => {
  const { it, pass, settle, tokens } = await world(t, throttle(60, { ...MINUTE, burst: 20 }));
  await it.stage("a", { cost: 10 });
  t.is(await pass(0), 1);
  await it.stage(["a", "a"]);
  await settle(0, 1e9);
  t.is(await tokens(0), -60);
  t.is(await pass(60.9), 0);
  t.is(
    await pass(61.1),
    1,
    "after its time it has nothing and owes nothing, and a second later its first token",
  );
});

test("a job dearer than its bucket may owe more, and settling it deepens no such debt", async (t) => {
  const { it, pass, settle, tokens } = await world(t, throttle(10, MINUTE));
  await it.stage("a", { cost: 35 });
  t.is(await pass(0), 1);
  t.is(await tokens(0), -25);
  await settle(0, 100);
  t.is(await tokens(0), -25);
});

test("a halted bucket goes by the rate that it has without the halt", async (t) => {
  const { it, pass, settle, tokens } = await world(t, throttle(60, MINUTE));
  await it.stage("a");
  t.is(await pass(0), 1);
  await it.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"rate": 0}', "from" => $1)`, [
    at(0),
  ]);
  await settle(0, 1000);
  t.is(await tokens(0), -60);
});

for (const [what, gate] of [
  ["sliding", sliding(60, MINUTE)],
  ["calendar", calendar(60, "minute UTC")],
] as const)
  test(`a ${what} window counts a charge from the end of the run, and a return from the admission`, async (t) => {
    const { it, pass, settle, tokens } = await world(t, gate);
    await it.stage(["a", "a"], { cost: 10 });
    t.is(await pass(0), 2);
    await it.stage(["a"], { cost: 20 });
    t.is(await pass(30), 1);
    await settle(40, 4, 15);
    t.is(await tokens(40), 60 - 4 - 10 - 5 - 20);
    const after = gate.sliding ? 60 - 5 - 20 : 60;
    t.is(await tokens(60), after, "what was spent at 0 is back, with what was returned of it");
    await settle(61, 2);
    t.is(await tokens(61), gate.sliding ? 60 - 5 - 2 : 60, "what a window has forgotten is not returned");
  });

test("a window has no bound for a charge, because it forgets it in its time", async (t) => {
  const { it, pass, settle, tokens } = await world(t, sliding(60, MINUTE));
  await it.stage(["a", "a"]);
  t.is(await pass(0), 2);
  await settle(10, 1000);
  t.is(await tokens(10), 60 - 1 - 1000);
  await it.stage("a");
  t.is(await pass(69.999), 0);
  t.is(await pass(70), 1);
});

test("each throttle by its name, and caps count jobs as before", async (t) => {
  const { it, pass, tokens } = await world(
    t,
    throttle(60, MINUTE),
    throttle(600, { per: 3600, name: "hour", scope: "policy" }),
    concurrency(5),
  );
  await it.stage(["a", "a"], { cost: 10 });
  t.is(await pass(0), 2);
  const [one, other] = await it.inFlight();
  const ends = [
    { job: one, ok: true, settled: { gates: { hour: 25, concurrency: 3, unknown: 3 } } },
    { job: other, ok: true, settled: { cost: 11, gates: { hour: 1 } } },
  ];
  await it.pool.query("select dispatch_policy_internal._release($1, $2)", [JSON.stringify(ends), at(0)]);
  t.is(await tokens(0), 60 - 10 - 11);
  t.is(await tokens(0, "hour"), 600 - 25 - 1);
  t.is((await it.limiter("concurrency")).in_flight, 0);
});

test("a shadow bucket is charged down to empty, and returns nothing, because it has not charged each job", async (t) => {
  const { it, pass, settle, tokens } = await world(t, { ...throttle(60, MINUTE), shadow: true });
  await it.stage(Array(8).fill("a"), { cost: 10 });
  t.is(await pass(0), 8, "it had room for six of them");
  await settle(0, 0, 0, 0);
  t.is(await tokens(0), 0);
  await settle(5, 12);
  t.is(await tokens(5), 3);
  await settle(5, 1000);
  t.is(await tokens(5), 0);
});

for (const [what, kind, now] of [
  ["after its per", throttle(60, MINUTE), 60],
  ["after it has filled, if that takes longer", throttle(60, { ...MINUTE, burst: 120 }), 120],
  ["after its per, if it fills sooner", throttle(60, { ...MINUTE, burst: 20 }), 60],
] as const)
  test(`a bucket has gained anew what was spent, ${what}, and returns no more of it`, async (t) => {
    const { it, pass, settle, tokens } = await world(t, kind);
    const capacity = kind.numbers.burst ?? kind.numbers.rate!;
    await it.stage(["a", "a", "a"], { cost: capacity / 4 });
    t.is(await pass(0), 3);
    await it.stage("a", { cost: capacity });
    t.is(await pass(now - 0.1), 1);
    t.is(await tokens(now - 0.1), 0);
    await settle(now - 0.1, 0);
    t.is(await tokens(now - 0.1), capacity / 4);
    await settle(now, 0, capacity / 4 + 1);
    t.is(await tokens(now), capacity / 4 + 0.1 - 1, "but what is dearer is charged");
  });

test("a throttle that a definition has added returns nothing to a job that was admitted before", async (t) => {
  const it = await engine(t, { gates: [concurrency(9)] });
  const { pass, settle, tokens } = timed(it);
  await it.stage(["a", "a"], { cost: 5 });
  t.is(await pass(0), 2);
  await it.stage("a", { cost: 10, gates: [concurrency(9), throttle(10, { ...MINUTE, name: "own" })] });
  t.is(await pass(1), 1);
  t.is(await tokens(1, "own"), 0);
  await settle(1, 0);
  t.is(await tokens(1, "own"), 0);
  await settle(1, 7);
  t.is(await tokens(1, "own"), -2, "it is charged, because it limits what comes next");
  await settle(1, 0);
  t.is(await tokens(1, "own"), 8, "a job that it has charged");
});

test("a job that takes the place of one admitted past its gates gets nothing back", async (t) => {
  const { it, pass, tokens } = await world(t, throttle(10, MINUTE));
  await it.stage("a", { cost: 10 });
  t.is(await pass(0), 1);
  await it.stage("a", { cost: 5, jobKey: "k" });
  await it.pool.query("select dispatch_policy.admit('p', 1, now => $1)", [at(0)]);
  await it.stage("a", { cost: 8, jobKey: "k" });
  t.is(await pass(60), 1);
  t.is(await tokens(60), 7, "it pays the difference to one that has paid nothing");
  const [, other] = await it.inFlight();
  await it.pool.query("select dispatch_policy_internal._release($1, $2)", [
    ...[JSON.stringify([{ job: other, ok: true, settled: { cost: 0 } }]), at(60)],
  ]);
  t.is(await tokens(60), 7);
});

test("a job that an operator has admitted past its gates gets nothing back", async (t) => {
  const { it, pass, settle, tokens } = await world(t, throttle(10, MINUTE));
  await it.stage(["a", "a", "a"], { cost: 10 });
  t.is(await pass(0), 1);
  await it.pool.query("select dispatch_policy.admit('p', 2, now => $1)", [at(0)]);
  t.is(await tokens(0), 0);
  const [, ...forced] = await it.inFlight();
  t.is(forced.length, 2);
  const ends = [2, 13].map((cost, n) => ({ job: forced[n], ok: true, settled: { cost } }));
  await it.pool.query("select dispatch_policy_internal._release($1, $2)", [JSON.stringify(ends), at(0)]);
  t.is(await tokens(0), -3, "the difference is charged all the same");
  await settle(0, 8);
  t.is(await tokens(0), -1, "a job that has paid gets back what it has not used");
});

test("an end that is not the slot's, a job that nobody settles, and one that is gone change nothing", async (t) => {
  const { it, pass, tokens } = await world(t, throttle(60, MINUTE));
  await it.stage(["a", "a"], { cost: 10 });
  t.is(await pass(0), 2);
  const [one, other] = await it.inFlight();
  const ends = [
    { job: one, admission: 1, ok: true, settled: { cost: 50 } },
    { job: other, ok: true },
    { job: "999999", ok: true, settled: { cost: 50 } },
  ];
  const { rows } = await it.pool.query("select left_ids from dispatch_policy_internal._release($1, $2)", [
    ...[JSON.stringify(ends), at(0)],
  ]);
  t.deepEqual(rows[0].left_ids, []);
  t.is(await tokens(0), 40);
  t.deepEqual(await it.inFlight(), [one]);
});

for (const scope of ["partition", "policy"] as const)
  test(`a return wakes who waits for the bucket, over the ${scope}, and a charge wakes nobody`, async (t) => {
    const { it, pass, settle } = await world(t, throttle(60, { ...MINUTE, scope }));
    const freed = () => it.table("freed").count();
    await it.stage(["a", "a", "a"], { cost: 20 });
    t.is(await pass(0), 3);
    t.is((await settle(0, 10)).may_end, null, "nobody waits");
    t.is(await freed(), 0);
    await it.stage("a", { cost: 30 });
    t.is(await pass(0), 0);
    t.is((await settle(0, 25)).may_end, null);
    t.is(await freed(), 0);
    t.is((await settle(0, 0)).may_end, 0);
    t.is(await freed(), 1);
    t.is(await pass(0), 0, "25 are too few for the next job, which is now told an earlier time");
    t.is(await freed(), 0);
    t.is(await pass(4.9), 0);
    t.is(await pass(5.1), 1);
  });

for (const [what, gates, passesOn] of [
  ["the slot, which is passed on", [concurrency(1), throttle(10, MINUTE)], [{ policy: "p", jobs: 1 }]],
  ["the tokens", [throttle(10, MINUTE), concurrency(1)], null],
] as const)
  test(`a job that needs both what comes back and the slot goes, if its partition waits for ${what}`, async (t) => {
    const it = await engine(t, { gates });
    const { pass, tokens } = timed(it);
    await it.stage("a", { cost: 10 });
    t.is(await pass(0), 1);
    await it.stage("a", { cost: 6 });
    t.is(await pass(0), 0);
    const ends = (await it.inFlight()).map((job) => ({ job, ok: true, settled: { cost: 3 } }));
    const { rows } = await it.pool.query(
      "select passed_on from dispatch_policy_internal._release($1, $2, true)",
      [...[JSON.stringify(ends), at(0)]],
    );
    t.deepEqual(rows[0].passed_on, passesOn);
    t.is(await pass(0), passesOn ? 0 : 1);
    t.is(await tokens(0), 1);
  });

test("the next job of a key pays for itself, also in the row of one that was settled", async (t) => {
  const { it, pass, settle, tokens } = await world(t, throttle(60, MINUTE));
  await it.stage("a", { cost: 10, jobKey: "k" });
  t.is(await pass(0), 1);
  await it.stage("a", { cost: 10, jobKey: "k" }); // it waits in the same row, and pays nothing anew
  t.is(await pass(1), 1);
  t.is(await tokens(1), 51);
  await settle(1, 4);
  t.is(await tokens(1), 57, "6 of the 10 that were paid");
});
