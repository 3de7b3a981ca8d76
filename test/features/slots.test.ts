// Jobs that take several slots of a concurrency gate: counted by what they take, strict, and dear ones in their turn.
import test, { type ExecutionContext } from "ava";
import {
  adaptiveConcurrency,
  concurrency,
  definePolicy,
  makePolicyUtils,
  PayloadError,
  PolicyDefinitionError,
  shared,
} from "../../src/index.ts";
import { type Engine, engine, slots, throttle, until } from "../helpers/engine.ts";
import { random, seedOf } from "../helpers/random.ts";
import { type Ctx, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { startWorker } from "../helpers/worker.ts";

const memory = (max: number | ((ctx: Ctx) => number)) =>
  concurrency<Ctx>({ name: "memory", scope: "policy", max, cost: (ctx) => ctx.cost });
const sixteen = { gates: [memory(16)] };

/** How many slots of a gate are taken, by the view; that is what its jobs in flight take. */
async function taken(t: ExecutionContext, it: Pick<Scenario, "rows">, gate = "memory"): Promise<number> {
  const [row] = await it.rows(
    `select l.in_flight, (
       select count(*)::int from dispatch_policy_internal.in_flight_jobs f, unnest(f.limiter_ids) u (id) where u.id = l.id) as counted
     from dispatch_policy.limiters l where l.gate = $1`,
    [gate],
  );
  t.is(row.counted, row.in_flight, "its counter is right");
  return row.in_flight;
}

for (const via of ["utils", "sql"] as const) {
  test(`jobs take as many slots as they say, and give back as many (${via})`, async (t) => {
    const it = await scenario(t, sixteen, { via, clock: "past" });
    await it.stage("3@dear", { cost: 4 });
    await it.stage("9@cheap", { cost: 1 });
    t.is((await it.tick()).admitted, 7, "3 x 4 + 4, by turns");
    t.is(await taken(t, it), 16);
    t.deepEqual(await it.inFlightBy(), { dear: 3, cheap: 4 });
    await it.finish(1, "dear");
    t.is(await taken(t, it), 12);
    t.is((await it.tick()).admitted, 4);
    t.deepEqual(await it.inFlightBy(), { dear: 2, cheap: 8 });
    for (let n = 0; n < 5; n++) {
      await it.finish(20);
      await it.tick();
    }
    t.is(await taken(t, it), 0);
    t.is(await it.staged(), 0);
  });
}

test("several gates, each with a cost of its own", async (t) => {
  const gpus = concurrency<Ctx>({ name: "gpus", scope: "policy", max: 2, cost: (ctx) => ctx.rate });
  const it = await scenario(t, { gates: [memory(16), gpus] }, { clock: "past" });
  await it.stage("1@a", { cost: 8, rate: 1 });
  await it.stage("1@b", { cost: 1, rate: 2 });
  await it.stage("1@c", { cost: 8, rate: 1 });
  await it.tick();
  t.deepEqual(
    [await taken(t, it), await taken(t, it, "gpus")],
    [8, 1],
    "b waits for two GPUs, and c behind it",
  );
  await it.finish(1);
  await it.tick();
  t.deepEqual([await taken(t, it), await taken(t, it, "gpus")], [1, 2]);
  await it.finish(1);
  await it.tick();
  t.deepEqual([await taken(t, it), await taken(t, it, "gpus")], [8, 1]);
});

test("a constant cost, and gates over the partition and over a key", async (t) => {
  const own = concurrency<Ctx>({ name: "own", max: 5, cost: 2 });
  const account = concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 7, cost: 3 });
  const it = await scenario(t, { gates: [own, account] }, { clock: "past" });
  await it.stage("9@a 9@b", { account: "x" });
  t.is((await it.tick()).admitted, 2, "6 of 7 of the account");
  await it.stage("9@c", { account: "y" });
  t.is((await it.tick()).admitted, 2, "4 of 5 of its own");
});

/** All slots are taken by cheap jobs, and a dear one waits for three. */
async function dearOneWaits(t: ExecutionContext, first: "cheap" | "dear" = "cheap"): Promise<Engine> {
  const world = await engine(t, { gates: [slots(4, { name: "all", scope: "policy" })] });
  await world.stage(["a", "b", "c", "d"]);
  t.is(await world.passes(), 4);
  await world.stage("dear", { takes: 3 });
  if (first === "cheap") await world.stage("behind");
  t.is(await world.passes(), 0);
  return world;
}

for (const passesOn of [false, true])
  test(`a dear job goes in its turn beside a stream of cheap ones of ever new partitions${passesOn ? ", where releases pass slots on" : ""}`, async (t) => {
    const world = await dearOneWaits(t);
    const went: number[] = [];
    for (let n = 0; n < 3; n++) {
      await world.release((await world.inFlight()).slice(0, 1), world.pool, { passesOn });
      await world.stage(`new${n}`);
      went.push(await world.passes(3));
    }
    t.deepEqual(went, [0, 0, passesOn ? 0 : 1], "it had its slots kept, one after the other");
    t.is((await world.inFlight("dear")).length, 1);
    t.is((await world.limiter("all")).in_flight, 4);
    await world.finish(await world.inFlight("dear"));
    t.is(await world.passes(3), 3);
    t.is(await world.wrongCounters(), 0);
    await world.drain();
    t.deepEqual(await world.leftovers(), {
      ...{ staged: 0, arrivals: 0, in_flight: 0, counters: 0, reserved: 0, notes: 0, blocked: 0 },
    });
  });

const LEAVES: Readonly<Record<string, (world: Engine, id: string) => Promise<unknown>>> = {
  "is removed": (world, id) => world.pool.query("select dispatch_policy.remove(array[$1::bigint])", [id]),
  "is paused": (world) => world.pool.query("select dispatch_policy.pause('p', 'dear')"),
  "moves away": (world) => world.pool.query("select dispatch_policy.move('p', 'dear', 'elsewhere')"),
  "takes fewer now": (world) => world.relimit("dear", [slots(4, { name: "all", scope: "policy" })]),
};
for (const [how, leave] of Object.entries(LEAVES))
  test(`those behind a dear job go once it ${how}`, async (t) => {
    const world = await engine(t, { gates: [slots(4, { name: "all", scope: "policy" })] });
    await world.stage(["a", "b"]);
    t.is(await world.passes(), 2);
    const [id] = await world.stage("dear", { takes: 3 });
    await world.stage("behind");
    t.is(await world.passes(2), 0, "two are free, and it takes three");
    await leave(world, id!);
    await world.passes(3);
    t.is((await world.inFlight("behind")).length, 1);
  });

test("a cost over a constant max is refused, and nothing is added", async (t) => {
  const it = await scenario(t, sixteen);
  const error = await t.throwsAsync(it.stage("1@a", { cost: 17 }), { instanceOf: PayloadError });
  t.regex(
    error.message,
    /concurrency "memory": cost must be no more than max, got cost 17 and max 16: .*Raise max, or make max a function/,
  );
  for (const [cost, got] of [
    [0, "0"],
    [2.5, "2.5"],
    [1001, "1001"],
    ["4", "a string"],
  ] as const) {
    const wrong = await t.throwsAsync(it.stage("1@a", { cost: cost as number }), {
      instanceOf: PayloadError,
    });
    t.true(
      wrong.message.includes(
        `concurrency "memory": cost returned by its function must be a whole number from 1 to 1000 (count in larger units if it is more), got ${got}`,
      ),
      wrong.message,
    );
  }
  t.is(await it.staged(), 0);
});

test("a job that takes more than a limit has waits for somebody to raise it, and holds nobody back", async (t) => {
  const it = await scenario(t, { gates: [memory((ctx) => ctx.max)] }, { clock: "past" });
  const [dear] = await it.stage("1@a", { cost: 8, max: 4 });
  await it.stage("3@b", { cost: 2, max: 4 });
  const pass = await it.tick();
  t.deepEqual([pass.admitted, pass.denied], [2, { cost_over_max: 1, concurrency_full: 1 }]);
  t.is((await it.partition("a")).reason, "cost_over_max");
  const why = await it.utils.explain({ id: dear!.id });
  t.deepEqual(
    [why.reason, why.gate, why.acts, why.gates[0]?.takes],
    ["cost_over_max", "memory", "operator", 8],
  );
  await it.rows("select dispatch_policy_internal._crontab_ticked('{p}')");
  const { noEstimate } = await it.utils.explain({ id: dear!.id });
  t.is(noEstimate, "it takes more slots than a limit has");
  t.regex(
    why.sentence,
    /It takes 8 slots of gate "memory", and the limit is 4: it does not go until somebody raises that/,
  );
  t.is(why.mend?.verb, "setLimit");
  await it.finish(2);
  t.is((await it.tick()).admitted, 1);
  await it.finish(1);
  await it.utils.setLimit({ policy: "p", gate: "memory", set: { max: 8 } });
  t.is((await it.tick()).admitted, 1);
  t.deepEqual(await it.inFlightBy(), { a: 1 });
});

test("a limit that is lowered below the cost of who waits, for a time", async (t) => {
  const it = await scenario(t, sixteen, { clock: "past" });
  await it.stage("1@a", { cost: 16 });
  t.is((await it.tick()).admitted, 1);
  const [next] = await it.stage("1@a", { cost: 16 });
  t.is((await it.tick()).admitted, 0);
  t.is((await it.partition("a")).reason, "concurrency_full");
  await it.utils.setLimit({
    policy: "p",
    gate: "memory",
    set: { max: 8 },
    until: new Date(Date.now() + 3_600_000),
  });
  await it.pass(undefined);
  t.is((await it.partition("a")).reason, "cost_over_max");
  const { reason, nextAt, mend } = await it.utils.explain({ id: next!.id });
  t.is(reason, "cost_over_max");
  t.true(nextAt!.getTime() > Date.now() + 3_000_000, "when that limit ends");
  t.is(mend?.verb, "clearLimit");
  await it.finish(1);
  t.is((await it.pass(undefined)).admitted, 0);
  await it.utils.clearLimit({ policy: "p", gate: "memory" });
  t.is((await it.pass(undefined)).admitted, 1);
});

test("explain says how many it takes, and who has them", async (t) => {
  const it = await scenario(t, sixteen, { clock: "past" });
  await it.stage("3@a", { cost: 4 });
  await it.tick();
  const [id] = await it.stage("1@b", { cost: 6 });
  await it.tick();
  const { gates, sentence } = await it.utils.explain({ id: id!.id });
  const [gate, ahead] = gates;
  t.deepEqual([gate?.used, gate?.free, gate?.takes, gate?.lacks], [12, 4, 6, true]);
  t.is(gates.length, 2, "each is there once");
  t.false("takes" in ahead!);
  t.regex(sentence, /It waits for gate "memory": 12 of 16 are in flight, and it takes 6, the oldest for/);
  const [behind] = await it.stage("1@c", { cost: 1 });
  await it.tick();
  const its = await it.utils.explain({ id: behind!.id });
  t.deepEqual([its.reason, its.gates[0]?.behind, its.gates[0]?.free], ["concurrency_full", true, 4]);
  t.regex(
    its.sentence,
    /12 of 16 are in flight, and those that are free are kept for a job before it that takes more/,
  );
});

test("definitions that cannot be are refused with the way out", (t) => {
  const refused = (make: () => unknown, message: RegExp) =>
    t.throws(make, { instanceOf: PolicyDefinitionError, message });
  refused(
    () => concurrency({ max: 2, cost: 3 }),
    /concurrency: cost must be no more than max, got cost 3 and max 2/,
  );
  refused(
    () => concurrency({ max: 2, cost: 0 }),
    /concurrency: cost must be a whole number from 1 to 1000 \(count in larger units if it is more\), or a function of the context, got 0/,
  );
  refused(() => concurrency({ max: 2000, cost: 1001 }), /from 1 to 1000/);
  refused(
    () => concurrency({ max: 2, cost: 1, perWorker: true }),
    /concurrency: perWorker counts runs, leave cost out/,
  );
  refused(
    () => adaptiveConcurrency({ initialMax: 2, targetLagMs: 1, cost: 1 } as never),
    /unknown option "cost"/,
  );
  t.notThrows(() => concurrency({ max: 0, cost: 3 }));
});

test("a job that goes in its add, and one that goes beside others in a release, take their slots", async (t) => {
  const world = await engine(t, { gates: [slots(4, { name: "all", scope: "policy" })] });
  await world.isLed();
  await world.stage("a", { takes: 3 });
  await world.passes();
  await world.finish(await world.inFlight());
  t.true((await world.addAlone("a", { takes: 3 })).admitted);
  t.false((await world.addAlone("a", { takes: 3 })).admitted);
  t.is((await world.limiter("all")).in_flight, 3);
  await world.passes();
  await world.release(await world.inFlight(), world.pool, { passesOn: true });
  t.is((await world.inFlight()).length, 1, "the next one");
  t.is((await world.limiter("all")).in_flight, 3);
  t.is(await world.wrongCounters(), 0);
});

test("a job that fails, waits and is tried again takes as many as before", async (t) => {
  const it = await scenario(t, { ...sixteen, backoff: () => "1 ms" });
  const hands = await it.hands();
  await it.stage("1@a", { cost: 5 });
  await it.tickNow();
  await hands.run(1);
  t.is(await taken(t, it), 5);
  await hands.end(1, "badly");
  await until("its slots are free", async () => (await taken(t, it)) === 0);
  await until("it goes again", async () => (await it.tickNow()).admitted === 1);
  t.is(await taken(t, it), 5);
});

test("jobs from SQL, and those that are adopted, are worked out by a process", async (t) => {
  const it = await scenario(t, sixteen);
  await it.rows('select dispatch_policy.add_job(\'p\', \'{"key": "a", "cost": 7}\')');
  await it.tickNow();
  await it.tickNow();
  t.is(await taken(t, it), 7);
  await it.rows('select graphile_worker.add_job(\'p\', \'{"key": "b", "cost": 6}\')');
  await it.utils.adopt({ task: "p" });
  await it.tickNow();
  await it.tickNow();
  t.is(await taken(t, it), 13);
});

test("a job that starts without an admission takes its slots, or a copy waits for them", async (t) => {
  const running = new Map<number, () => void>();
  const policy = definePolicy("work", {
    context: (payload) => payload as { n: number; gb: number },
    partitionBy: "n",
    gates: [concurrency({ scope: "policy", max: 4, cost: (ctx: { gb: number }) => ctx.gb })],
  });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      work: (payload) => new Promise<void>((resolve) => running.set((payload as { n: number }).n, resolve)),
    },
  });
  t.teardown(() => running.forEach((end) => void end()));
  const past = (n: number) =>
    worker.pool.query("select graphile_worker.add_job('work', json_build_object('n', $1::int, 'gb', 3))", [
      n,
    ]);
  await past(1);
  await until("it runs", () => running.has(1));
  t.is(
    (await worker.row("select in_flight from dispatch_policy.limiters where kind = 'concurrency'")).in_flight,
    3,
  );
  await past(2);
  await until(
    "a copy waits",
    async () => (await worker.row("select count(*)::int as n from dispatch_policy.staged_jobs")).n === 1,
  );
  running.get(1)!();
  await until("it goes", () => running.has(2));
  running.get(2)!();
  await worker.everythingIsReleased();
});

test("a sweep corrects a counter by what jobs take", async (t) => {
  const world = await engine(t, { gates: [slots(9, { name: "all", scope: "policy" })] });
  await world.stage(["a", "b"], { takes: 3 });
  t.is(await world.passes(), 2);
  await world.table("limiters").set({ in_flight: 2 });
  await world.pool.query("select dispatch_policy_internal._sweep_counters()");
  t.is((await world.limiter("all")).in_flight, 6);
});

test("a later definition without a cost: what runs keeps what it takes, and what waits takes one", async (t) => {
  const it = await scenario(t, sixteen, { clock: "past" });
  await it.stage("3@a", { cost: 8 });
  t.is((await it.tick()).admitted, 2);
  const plain = concurrency<Ctx>({ name: "memory", scope: "policy", max: 16 });
  const utils = await it.makeUtils([policyOf("p", { gates: [plain], version: 1 } as never)]);
  await utils.addJobs(
    Array(20).fill({ identifier: "p", payload: { key: "b" }, runAt: new Date(0) }) as never,
  );
  await utils.tick({ policy: "p", now: it.at(1) });
  t.is(await taken(t, it), 16, "nothing more");
  await it.finish(2, "a");
  await utils.tick({ policy: "p", now: it.at(2) });
  t.is(await taken(t, it), 16);
  t.deepEqual(await it.inFlightBy(), { a: 1, b: 15 });
});

test("a shared limit counts what the jobs of each policy take, and gives a dear one its turn", async (t) => {
  const gates = () => [
    shared("memory", concurrency<Ctx>({ scope: "policy", max: 4, cost: (ctx) => ctx.cost })),
  ];
  const it = await scenario(t, policyOf("a", { gates: gates() }), {
    ...{ others: [policyOf("b", { gates: gates() })], clock: "now" },
  });
  const runAt = new Date(0);
  const add = (identifier: string, count: number, key: string, cost: number) =>
    it.utils.addJobs(Array(count).fill({ identifier, payload: { key, cost }, runAt }) as never);
  const tick = async (policies: string, seconds: number) => {
    let admitted = 0;
    for (const policy of policies)
      admitted += (await it.utils.tick({ policy, now: it.at(seconds) })).admitted;
    return admitted;
  };
  await add("a", 4, "cheap", 1);
  t.is(await tick("a", 0), 4);
  await add("b", 1, "dear", 3);
  await add("a", 4, "cheap", 1);
  t.is(await tick("ab", 1), 0);
  await it.finish(2, "cheap");
  t.is(await tick("ab", 2), 0, "two are free, and b's job takes three");
  await it.finish(1, "cheap");
  t.is(await tick("abab", 3), 1);
  t.is(await taken(t, it), 4);
  const { rows } = {
    rows: await it.rows("select policy from dispatch_policy.in_flight_jobs order by policy"),
  };
  t.deepEqual(
    rows.map(({ policy }) => policy),
    ["a", "b"],
  );
  const refused = () => shared("x", concurrency<Ctx>({ max: (ctx) => ctx.max, cost: 1 }));
  t.throws(refused, { instanceOf: PolicyDefinitionError, message: /max must be a constant/ });
});

test("those whose jobs take more than a shared limit has hide nobody of a policy without a cost", async (t) => {
  const limit = { scope: "policy", max: 4 } as const;
  const dear = policyOf("a", {
    gates: [shared("memory", concurrency<Ctx>({ ...limit, cost: (ctx) => ctx.cost }))],
  });
  const plain = policyOf("b", { gates: [shared("memory", concurrency<Ctx>(limit))] });
  const it = await scenario(t, dear, { others: [plain] });
  const add = (identifier: string, keys: string, more: object) =>
    it.utils.addJobs(
      [...keys].map((key) => ({ identifier, payload: { key, ...more }, runAt: new Date(0) })) as never,
    );
  const tick = async (policy: string) => (await it.utils.tick({ policy })).admitted;
  await add("b", "xxxx", {});
  t.is(await tick("b"), 4);
  await add("a", "klmn", { cost: 4 });
  t.is(await tick("a"), 0);
  await add("b", "y", { weight: 0.001 });
  t.is(await tick("b"), 0, "behind all of them");
  await it.utils.setLimit({ policy: "a", gate: "memory", set: { max: 3 } });
  const jobs = await it.rows("select job_id from dispatch_policy.in_flight_jobs limit 3");
  await it.utils.completeJobs(jobs.map((row) => row.job_id));
  await it.utils.sweep();
  t.deepEqual([await tick("a"), await tick("b")], [0, 1]);
});

test("where each job takes all slots, one of ten jobs goes by wait", async (t) => {
  for (const cost of [1, 10]) {
    const it = await scenario(t, { gates: [memory(cost)] });
    await it.stage("1@x", { cost });
    await it.tick();
    await it.stage("20@a", { cost, weight: 9 });
    await it.stage("20@b", { cost });
    await it.tick();
    let went = "";
    for (let n = 1; n <= 20; n++) {
      await it.finish(1);
      await it.tick(n * 6);
      went += (await it.inFlight())[0]?.partition;
    }
    t.is(went, "aaaaaaaabaaaaaaaaaba", `cost ${cost}`);
  }
});

test("a class has its share of the slots, whatever its jobs and others take", async (t) => {
  for (const [first, later] of [
    [5, 5],
    [10, 1],
    [1, 10],
  ] as const) {
    const it = await scenario(t, {
      gates: [memory(10)],
      class: (ctx: Ctx) => ctx.max - 1,
      classShare: { 1: 0.1 },
    });
    await it.stage(`${10 / first}@x`, { cost: first });
    await it.tick();
    await it.stage("20@later", { max: 2, cost: later });
    await it.stage(`${200 / first}@first`, { cost: first });
    await it.tick();
    for (let n = 0; n < 15; n++) {
      await it.finish(10);
      await it.tick();
    }
    const rows = await it.rows(
      "select key, admitted_total::int as jobs from dispatch_policy_internal.partitions",
    );
    const jobs = Object.fromEntries(rows.map((row) => [row.key, row.jobs]));
    const slotsOf = { first: jobs.first * first, later: jobs.later * later };
    const share = slotsOf.later / (slotsOf.first + slotsOf.later);
    t.true(share > 0.03 && share < 0.15, `${first} and ${later}: ${JSON.stringify(slotsOf)}`);
  }
});

test("workers keep a limit by cost, wake each other, and need no sweep", async (t) => {
  const { between } = random(seedOf(t));
  const costs = Array.from({ length: 80 }, () => Math.floor(between(1, 6)));
  let running = 0;
  let most = 0;
  let ended = 0;
  const it = await scenario(t, { gates: [memory(8)] });
  await it.worker({
    tasks: {
      p: async (payload) => {
        const { cost } = payload as Ctx;
        running += cost;
        most = Math.max(most, running);
        await new Promise((resolve) => setTimeout(resolve, between(0, 12)));
        running -= cost;
        ended += 1;
      },
    },
    settings: { sweepInterval: "1 hour" },
  });
  for (const [n, cost] of costs.entries()) await it.stage(`1@k${n % 6}`, { cost });
  await until("all have run", () => ended === costs.length);
  t.true(most <= 8 && most > 5, `${most} at once`);
  await until("all is released", async () => (await it.inFlight()).length === 0);
  t.is(await taken(t, it), 0);
  const [left] = await it.rows(
    `select (select count(*)::int from dispatch_policy_internal.partitions where blocked_on is not null) as blocked,
       (select repaired from dispatch_policy_internal.all_policies) as repaired`,
  );
  t.deepEqual(left, { blocked: 0, repaired: {} });
});

test("two keyed gates: a dear job has its slots kept while it waits for the other", async (t) => {
  const gates = [
    slots(4, { name: "one", scope: () => "x" }),
    slots(4, { name: "two", scope: (key) => (key === "elsewhere" ? "z" : "y") }),
  ];
  const world = await engine(t, { gates });
  await world.stage("first", { takes: { one: 1, two: 4 } });
  t.is(await world.passes(), 1);
  await world.stage("dear", { takes: { one: 3, two: 2 } });
  t.is(await world.passes(), 0);
  t.not((await world.limiter("one")).reserved_for, null);
  await world.stage("elsewhere", { takes: 1 });
  t.is(await world.passes(2), 0, "three are kept, and one is in flight");
  await world.finish(await world.inFlight("first"));
  t.is(await world.passes(3), 2);
  t.is(await world.wrongCounters(), 0);
});

test("a throttle beside it counts tokens by the policy's cost, as ever", async (t) => {
  const world = await engine(t, {
    gates: [
      throttle(5, { per: 3600, name: "calls", scope: "policy" }),
      slots(8, { name: "all", scope: "policy" }),
    ],
  });
  await world.stage(["a", "b", "c"], { takes: 4, cost: 2 });
  t.is(await world.passes(2), 2);
  t.is((await world.limiter("all")).in_flight, 8);
  t.true(Math.abs((await world.limiter("calls")).tokens - 1) < 0.1);
});

test("utils without a worker: the reason of a job that nobody can work out is its own", async (t) => {
  const it = await scenario(t, { gates: [memory(4)] });
  const utils = await makePolicyUtils({ pgPool: it.connections(1), logger: silent });
  t.teardown(() => utils.release());
  await it.rows('select dispatch_policy.add_job(\'p\', \'{"key": "a", "cost": 9}\')');
  await it.tickNow();
  await until("it is refused", async () => {
    const [row] = await it.rows("select error from dispatch_policy.staged_jobs where error is not null");
    return row?.error.includes("cost must be no more than max, got cost 9 and max 4") === true;
  });
  t.is(await it.staged(), 1);
});
