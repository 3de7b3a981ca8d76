// Jobs of a partition that name different keys lie in lanes. What belongs to the partition goes by all of them together.
import test, { type ExecutionContext } from "ava";
import {
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { workerTable } from "../helpers/table.ts";

/** A gate over an account. */
const account = (max: number, key = "k") => concurrency(max, { name: "account", scope: () => key });

/** Adds jobs of partition `a` that name an account, in its lane. */
type Stage = (key: string, count?: number, options?: object) => Promise<string[]>;

async function world(
  t: ExecutionContext,
  own: readonly TestGate[],
  { most = 9, ...options }: Partial<EngineOptions> & { most?: number } = {},
): Promise<{ it: Engine; stage: Stage; lanes: () => Promise<Record<string, number>> }> {
  const it = await engine(t, { ...options, gates: [...own, account(most)] });
  const stage: Stage = (key, count = 1, more = {}) =>
    it.stage(Array(count).fill("a"), { gates: [...own, account(most, key)], ...more });
  /** How many jobs of each account are in flight. */
  const lanes = async () => {
    const { rows } = await it.pool.query(
      `select l.scope_key, count(*)::int as jobs from dispatch_policy_internal.in_flight_jobs f
       join dispatch_policy_internal.limiters l on l.id = any(f.limiter_ids) and l.gate = 'account' group by 1 order by 1`,
    );
    return Object.fromEntries(rows.map(({ scope_key, jobs }) => [scope_key, jobs]));
  };
  return { it, stage, lanes };
}

const view = async (it: Engine) =>
  (await it.pool.query("select * from dispatch_policy.partitions where partition = 'a'")).rows;

test("with lanes or without, a partition has one share: of one pass, and of slot after slot", async (t) => {
  const { it, stage, lanes } = await world(t, [concurrency(6, { name: "all", scope: "policy" })]);
  for (const key of ["k1", "k2"]) await stage(key, 40);
  await it.stage(Array(40).fill("b"), {
    gates: [concurrency(6, { name: "all", scope: "policy" }), account(9, "k3")],
  });
  t.is(await it.passes(), 6);
  t.deepEqual(await lanes(), { k1: 2, k2: 1, k3: 3 });
  let ended = 0;
  for (let round = 0; round < 15; round++) {
    const [first = ""] = await it.inFlight();
    await it.pool.query("select graphile_worker.complete_jobs($1)", [[first]]);
    await it.release([first], it.pool, { passesOn: round % 2 === 0 });
    if ((await it.inFlight()).length < 6) await it.passes();
    ended++;
  }
  t.is(ended, 15);
  const { rows } = await it.pool.query(
    "select key, sum(admitted_total)::int as jobs from dispatch_policy_internal.partitions group by 1 order by 1",
  );
  t.true(Math.abs(rows[0].jobs - rows[1].jobs) <= 1, JSON.stringify(rows));
});

test("a lane whose first job expires does not come before the others by that job", async (t) => {
  const all = concurrency(2, { name: "all", scope: "policy" });
  const { it, stage, lanes } = await world(t, [all]);
  await stage("k1", 1, { priority: 5 });
  const [expiring] = await stage("k1");
  await it.route();
  await stage("k2");
  await it.stage("b", { gates: [all, account(9, "k3")], weight: 0.5 }); // its job is as a partition's second one
  await it.route();
  await it.table("staged_jobs").set({ expires_at: "-infinity" }, { id: expiring });
  t.is((await it.admit()).admitted, 2);
  t.deepEqual(await lanes(), { k2: 1, k3: 1 });
});

test("the partition's own cap counts over its lanes, and each lane gets slots of it", async (t) => {
  const { it, stage, lanes } = await world(t, [concurrency(1)]);
  await stage("k1", 2);
  await stage("k2", 2);
  const went: string[] = [];
  t.is(await it.passes(2), 1);
  for (let n = 0; n < 4; n++) {
    went.push(...Object.keys(await lanes()));
    const ids = await it.inFlight();
    t.is(ids.length, 1);
    await it.pool.query("select graphile_worker.complete_jobs($1)", [ids]);
    await it.release(ids, it.pool, { passesOn: true });
    if ((await it.inFlight()).length === 0) await it.passes(2);
  }
  t.deepEqual(went.toSorted(), ["k1", "k1", "k2", "k2"]);
  t.deepEqual(await it.leftovers(), await nothing(it));
});

const nothing = async (it: Engine) =>
  Object.fromEntries(Object.keys(await it.leftovers()).map((name) => [name, 0]));

test("cheap jobs of one lane do not use the tokens that a dear one of another lane waits for", async (t) => {
  const { it, stage, lanes } = await world(t, [throttle(10, { per: 1000, burst: 10 })], { most: 99 });
  const at = (seconds: number) => new Date(Date.UTC(2100, 0, 1) + 1000 * seconds);
  const pass = async (seconds: number) => {
    await it.route();
    return (await it.admit({ now: at(seconds) })).admitted;
  };
  await stage("k1", 10);
  t.is(await pass(0), 10);
  await it.finish(await it.inFlight());
  await stage("k1", 1, { cost: 5 });
  await stage("k2", 9);
  const went = [];
  for (let seconds = 100; seconds <= 700; seconds += 100) went.push(await pass(seconds));
  t.deepEqual(went, [0, 2, 0, 0, 0, 0, 1], "the cheap ones go once, as they are not in line yet");
  t.deepEqual(await lanes(), { k1: 1, k2: 2 });
});

test("a pause and a hold stop all lanes, also one that comes later, and show once", async (t) => {
  const { it, stage, lanes } = await world(t, []);
  await stage("k1");
  await stage("k2");
  await it.route();
  const { rows } = await it.pool.query("select matched, changed from dispatch_policy.pause('p', 'a')");
  t.deepEqual(rows, [{ matched: 1, changed: 1 }]);
  await stage("k3");
  t.is(await it.passes(2), 0);
  t.is((await it.pool.query("select * from dispatch_policy.stops")).rowCount, 1);
  t.deepEqual(
    (await view(it)).map(({ staged, reason }) => [staged, reason]),
    [[3, "paused"]],
  );
  t.deepEqual((await it.pool.query("select matched, changed from dispatch_policy.resume('p', 'a')")).rows, [
    { matched: 1, changed: 1 },
  ]);
  t.is(await it.passes(2), 3);
  t.deepEqual(await lanes(), { k1: 1, k2: 1, k3: 1 });
});

test("a stop that came before the first job is that of each lane", async (t) => {
  const { it, stage } = await world(t, []);
  await it.pool.query("select dispatch_policy.pause('p', 'a')");
  await stage("k1");
  await it.route();
  t.like(await it.partition("a"), { laned: false, staged: 1 }, "no row is left that only the stop has made");
  await stage("k2");
  t.is(await it.passes(2), 0);
  await it.pool.query("select dispatch_policy.resume('p', 'a')");
  t.is(await it.passes(2), 2);
});

test("after a hold one job of all lanes is the probe, and lets all go", async (t) => {
  const { it, stage } = await world(t, []);
  await stage("k1", 2);
  await stage("k2", 2);
  await it.route();
  await it.pool.query(`select dispatch_policy.hold('p', 'a', "for" => '0')`);
  t.is(await it.passes(3), 1);
  await it.finish(await it.inFlight());
  t.is(await it.passes(2), 3);
});

test("failures of all lanes open the breaker of the partition, and the probe that fails closes all", async (t) => {
  const breaker = { failures: 2, withinSeconds: 600, cooldownSeconds: 600 };
  const { it, stage } = await world(t, [], { breaker });
  await stage("k1", 2);
  await stage("k2", 2);
  t.is(await it.passes(), 4);
  const jobs = await it.inFlight();
  const fail = async (job: string) => {
    await it.pool.query("select graphile_worker.permanently_fail_jobs($1)", [[job]]);
    await it.release([{ job, ok: false }]);
  };
  await fail(jobs[0]!);
  await fail(jobs[2]!);
  await stage("k1");
  await stage("k2");
  t.is(await it.passes(2), 0);
  const rows = await it.table("partitions").all();
  t.true(rows.every(({ breaker_until, failures }) => breaker_until > new Date() && failures === 0));
  t.is((await view(it))[0].reason, "breaker_open");
});

test("strict order goes over all lanes: none passes the first job, whatever its own gates say", async (t) => {
  const { it, stage, lanes } = await world(t, [], { order: "strict", most: 1 });
  const at = (seconds: number) => new Date(Date.UTC(2100, 0, 1) + 1000 * seconds);
  const pass = async (seconds: number) => {
    await it.route();
    return (await it.admit({ now: at(seconds) })).admitted;
  };
  await stage("k1", 2);
  await stage("k2");
  t.is(await pass(0), 1);
  t.is(await pass(2), 0, "the second job of k1 is first, and its account is full");
  await it.finish(await it.inFlight());
  t.is(await pass(4), 1);
  t.deepEqual(await lanes(), { k1: 1 });
  t.is(await pass(6), 1);
  t.deepEqual(await lanes(), { k1: 1, k2: 1 });
});

for (const strict of [false, true])
  test(`maxPending counts over all lanes${strict ? ", if it is strict also before they are routed" : ""}`, async (t) => {
    const { it, stage } = await world(t, [], { maxPending: { partition: 3, whenFull: "reject", strict } });
    await stage("k1", 2);
    await stage("k2");
    if (!strict) await it.route();
    await t.throwsAsync(stage("k3"), {
      message: /1 of these jobs do not fit into partition 'a': 3 of at most 3 are pending/,
    });
  });

test("explain and the counts are those of the partition", async (t) => {
  const { it, stage } = await world(t, [], { most: 1 });
  await stage("k1", 3);
  await stage("k2", 2);
  t.is(await it.passes(2), 2);
  t.deepEqual(
    (await view(it)).map(({ staged, in_flight, admitted_total }) => ({
      staged,
      in_flight,
      admitted_total: Number(admitted_total),
    })),
    [{ staged: 3, in_flight: 2, admitted_total: 2 }],
  );
  const [policy] = (await it.pool.query("select partitions, staged from dispatch_policy.policies")).rows;
  t.deepEqual([policy.partitions, Number(policy.staged)], [1, 3]);
  const [{ explain }] = (
    await it.pool.query("select dispatch_policy.explain(policy => 'p', partition => 'a')")
  ).rows;
  t.like(explain, { state: "waiting", reason: "concurrency_full", gate: "account" });
  t.is(explain.partition_id, (await view(it))[0].id);
});

test("a lane that nobody uses goes without the limiters that others have", async (t) => {
  const { it, stage, lanes } = await world(t, [concurrency(1)]);
  await stage("k1");
  await stage("k2");
  t.is(await it.passes(2), 1);
  const [going] = Object.keys(await lanes());
  await it.drain();
  const old = new Date(Date.now() + 2 * 86_400_000);
  await stage(going!);
  await it.route();
  const { rows } = await it.pool.query(
    "select dispatch_policy_internal._collect_partitions($1, '1 day') as n",
    [old],
  );
  t.is(rows[0].n, 1);
  t.is(await it.passes(), 1);
});

for (let n = 0; n < 4; n++)
  test(`each job counts at the key that it names, wherever its lane lies, ${n}`, async (t) => {
    const { it, stage } = await world(t, []);
    const keys = [`x${n}`, `y${n}`];
    const ids = [await stage(keys[0]!), await stage(keys[1]!)].flat();
    t.is(await it.passes(), 2);
    const { rows } = await it.pool.query(
      `select f.staged_id, l.scope_key from dispatch_policy_internal.in_flight_jobs f
       join dispatch_policy_internal.limiters l on l.id = any(f.limiter_ids) and l.gate = 'account' order by 1`,
    );
    t.deepEqual(
      rows.map(({ staged_id, scope_key }) => [staged_id, scope_key]),
      ids.map((id, place) => [id, keys[place]]),
    );
  });

test("a pause that was open while the first job came stops lanes that wait by then", async (t) => {
  const { it, stage } = await world(t, [concurrency(1)]);
  const session = await it.session();
  await session.query("begin");
  await session.query("select dispatch_policy.pause('p', 'a')");
  await stage("k1", 2);
  t.is(await it.passes(), 1);
  await session.query("commit");
  await it.route();
  const ids = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [ids]);
  await it.release(ids, it.pool, { passesOn: true });
  t.is(await it.passes(2), 0);
  t.like((await view(it))[0], { reason: "paused", blocked_on: null });
});

/** The policy has another definition now, whose gates are these. */
const redefine = async (it: Engine, own: readonly TestGate[]) => {
  const { definition } = (await it.pool.query("select definition from dispatch_policy.policies")).rows[0];
  const gates = own.map(({ name, kind, scope, numbers }, position) => ({
    name,
    kind,
    scope,
    position,
    values: numbers,
  }));
  const settings = {
    halfLifeSeconds: 60,
    admissionBatchSize: 100,
    tickAdmissionBudget: 100,
    ahead: { jobs: null, seconds: null },
  };
  await it.pool.query("select dispatch_policy_internal._declare_policy($1, 'other', $2, clock_timestamp())", [
    JSON.stringify({ ...definition, gates }),
    JSON.stringify(settings),
  ]);
};

test("lanes of a gate that is gone still are of the partition: its stops, its cap and its order", async (t) => {
  const { it, stage } = await world(t, [concurrency(2)], { budget: 100 });
  await stage("k1", 3);
  await it.route();
  await it.pool.query("select dispatch_policy.pause('p', 'a')");
  await redefine(it, [concurrency(2)]);
  await it.stage(["a", "a", "a"], { gates: [concurrency(2)] });
  t.is(await it.passes(2), 0);
  await it.pool.query("select dispatch_policy.resume('p', 'a')");
  t.is(await it.passes(2), 2);
});

for (const [how, gate, make] of [
  [
    "that code outside jobs has made",
    throttle(3, { name: "own", per: 1000 }),
    async (it: Engine) => {
      await it.pool.query(
        `insert into dispatch_policy_internal.limiters (policy_id, gate, scope_key, kind, breadth, position, numbers, tokens, refilled_at)
       select p.id, 'own', 'a', 'throttle', 0, 0,
         jsonb_populate_record(null::dispatch_policy_internal.gate_numbers, '{"rate": 3, "per": 1000}'), 3, clock_timestamp()
       from dispatch_policy_internal.policies p`,
      );
    },
  ],
  ["that counted over a key before", concurrency(3, { name: "own" }), async () => {}],
] as const)
  test(`a limiter of the partition counts over its lanes, also one ${how}`, async (t) => {
    const { it } = await world(t, [], { budget: 100 });
    const add = (gates: readonly TestGate[], count: number) =>
      Promise.all(
        ["k1", "k2"].map((key) => it.stage(Array(count).fill("a"), { gates: [...gates, account(99, key)] })),
      );
    await add(how.startsWith("that counted") ? [concurrency(3, { name: "own", scope: () => "a" })] : [], 1);
    await it.passes();
    await it.finish(await it.inFlight());
    await make(it);
    await add([gate], 9);
    t.is(await it.passes(2), 3);
  });

test("strict order wakes the lane whose turn it is", async (t) => {
  const { it, stage, lanes } = await world(t, [], { order: "strict" });
  const now = new Date(Date.UTC(2100, 0, 1));
  for (const key of ["k1", "k2", "k1", "k2"]) await stage(key);
  await it.route();
  let admitted = 0;
  for (let pass = 0; pass < 8; pass++) admitted += (await it.admit({ now })).admitted;
  t.is(admitted, 4);
  t.deepEqual(await lanes(), { k1: 2, k2: 2 });
});

test("under strict order a job that is not routed yet keeps back those behind it in another lane", async (t) => {
  const { it, stage } = await world(t, [], { order: "strict" });
  const ids = await stage("k1");
  await it.route();
  ids.push(...(await stage("k2")), ...(await stage("k1")));
  const now = new Date(Date.UTC(2100, 0, 1));
  t.is((await it.admit({ now })).admitted, 0);
  await it.route();
  const went: string[] = [];
  for (let pass = 1; pass < 5; pass++) {
    await it.admit({ now: new Date(now.getTime() + 100 * pass) });
    const flying = (await it.table("in_flight_jobs").all()).map(({ staged_id }) => staged_id);
    went.push(...flying.filter((id) => !went.includes(id)));
  }
  t.deepEqual(went, ids);
});

test("jobs that did not fit are counted at their partition", async (t) => {
  const { it, stage } = await world(t, [], { maxPending: { partition: 2, whenFull: "drop_newest" } });
  for (const key of ["k1", "k2"]) {
    await stage(key);
    await it.route();
  }
  await stage("k1", 5);
  await stage("k3", 2);
  await it.readEvents();
  t.deepEqual(
    (await view(it)).map(({ staged, dropped_total }) => [staged, Number(dropped_total)]),
    [[2, 7]],
  );
});

test("verbs count jobs that no router has seen, and find failed ones whose lane is gone", async (t) => {
  const { it, stage } = await world(t, []);
  await stage("k1", 2);
  const ask = async (text: string) => (await it.pool.query(text)).rows[0];
  t.like(await ask("select * from dispatch_policy.pause('p', 'a', dry_run => true)"), {
    matched: 1,
    staged: 2,
    stored: false,
  });
  t.like(await ask("select * from dispatch_policy.pause('p', 'a')"), { matched: 1, stored: false });
  await ask("select * from dispatch_policy.resume('p', 'a')");
  t.is(await it.passes(2), 2);
  const ids = await it.inFlight();
  await it.pool.query("select graphile_worker.permanently_fail_jobs($1)", [ids]);
  await it.release(ids.map((job) => ({ job, ok: false })));
  await it.pool.query("select dispatch_policy_internal._collect_partitions($1, '1 day')", [
    new Date(Date.now() + 3 * 86_400_000),
  ]);
  t.deepEqual(await it.table("partitions").all(), []);
  t.like(await ask("select * from dispatch_policy.retry(policy => 'p', partition => 'a', dry_run => true)"), {
    matched: 2,
  });
});

test("a tenant sees a partition by the newest context alone, and once", async (t) => {
  const { it, stage } = await world(t, []);
  const of = (acc: string) => JSON.stringify({ acc });
  for (const [key, acc] of [
    ["k1", "old"],
    ["k2", "new"],
  ] as const) {
    await stage(key, 1, { context: { acc } });
    await it.route();
  }
  const has = async (acc: string) =>
    (await it.pool.query("select dispatch_policy.has_context('p', 'a', $1) as has", [of(acc)])).rows[0].has;
  t.deepEqual([await has("old"), await has("new")], [false, true]);
  const keys = async (acc: string) =>
    (
      await it.pool.query("select keys from dispatch_policy.partitions_with('p', $1, null, 100, 10000)", [
        of(acc),
      ])
    ).rows[0].keys;
  t.deepEqual([await keys("old"), await keys("new")], [[], ["a"]]);
});

test("explain names the scope that a gate has", async (t) => {
  const { it, stage } = await world(t, [concurrency(1)]);
  for (const key of ["k1", "k2"]) await stage(key, 2);
  await it.passes(2);
  const [{ it: told }] = (
    await it.pool.query("select dispatch_policy.explain(policy => 'p', partition => 'a') as it")
  ).rows;
  t.deepEqual(
    told.gates.map(({ gate, scope }: { gate: string; scope: string }) => [gate, scope]).slice(0, 2),
    [
      ["concurrency", "partition"],
      ["account", "key"],
    ],
  );
});

test("a job that starts past its policy does not pass a stop from before the first job", async (t) => {
  const { it } = await world(t, []);
  await it.pool.query("select dispatch_policy.pause('p', 'a')");
  await it.pool.query("select graphile_worker.add_job('p', '{}')");
  await workerTable(it.pool).set({ locked_at: () => "now()", locked_by: "w", attempts: 1 });
  const job = await workerTable(it.pool).one();
  const { rows } = await it.pool.query(
    "select verdict from dispatch_policy_internal._catch_unadmitted($1, $2, 1, 'w', $3, $4, '{}', 'enforce', null)",
    [job.id, job.revision, job.locked_at, JSON.stringify(it.batch(["a"], { gates: [account(9, "k1")] }))],
  );
  t.is(rows[0].verdict, "copied");
});
