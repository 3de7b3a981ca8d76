// The reason that is shown is what holds a partition back now.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, type TestGate, throttle } from "../helpers/engine.ts";
import { random, seedOf } from "../helpers/random.ts";

const one = [concurrency(1, { name: "gate", scope: "policy" })];
const none = [throttle(1, { name: "gate", per: 3600, scope: "policy" })];

/** Partition a waits at a gate that partition b has used up. */
async function full(t: ExecutionContext, gates: readonly TestGate[]): Promise<Engine> {
  const world = await engine(t, { gates });
  await world.stage("b");
  t.is(await world.passes(), 1);
  await world.stage("a");
  t.is(await world.passes(), 0);
  return world;
}

/** Partition a's reason, which its staged jobs show as well. */
async function reason(world: Engine): Promise<string | null> {
  const { rows } = await world.pool.query(`select array_agg(distinct r.reason) as reasons from (
    select reason from dispatch_policy.partitions where partition = 'a'
    union all select reason from dispatch_policy.staged_jobs where partition = 'a') r`);
  const [shown, ...others] = rows[0].reasons;
  if (others.length > 0) throw new Error(`the views differ: ${rows[0].reasons}`);
  return shown;
}

for (const [kind, gates, halt, empty, zero] of [
  ["cap", one, { max: 0 }, "concurrency_full", "max_zero"],
  ["throttle", none, { rate: 0 }, "throttle_empty", "rate_zero"],
] as const) {
  test(`a ${kind} that an operator halts, and no longer: those who wait for it show that`, async (t) => {
    const world = await full(t, gates);
    t.is(await reason(world), empty);
    await world.pool.query("select dispatch_policy.set_limit('p', 'gate', $1)", [halt]);
    await world.route();
    t.is(await reason(world), zero);
    await world.pool.query("select dispatch_policy.clear_limit('p', 'gate')");
    await world.route();
    t.is(await reason(world), empty);
  });
}

test("a hold, and its end", async (t) => {
  const world = await full(t, one);
  await world.pool.query("select dispatch_policy.hold('p', 'a', now() + interval '1 hour')");
  t.is(await reason(world), "held");
  await world.pool.query("select dispatch_policy.resume('p', partition => 'a')");
  t.is(await reason(world), null, "nobody has looked yet");
  await world.passes();
  t.is(await reason(world), "concurrency_full");
});

test("a hold that is over, of a policy without a breaker: the others wait for the job that went first", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "a"]);
  await world.pool.query("select dispatch_policy.hold('p', 'a', \"for\" => '0')");
  t.is(await world.passes(2), 1);
  t.is(await reason(world), "probing");
  await world.pool.query("select dispatch_policy.hold('p', 'a', now() + interval '1 hour')");
  t.is(await reason(world), "held");
});

test("a breaker that opens, a task's hold after it, and the end of both", async (t) => {
  const breaker = { failures: 1, withinSeconds: 60, cooldownSeconds: 60 };
  const world = await engine(t, { gates: [concurrency(1)], breaker });
  await world.stage(["a", "a", "a"]);
  t.is(await world.passes(), 1);
  t.is(await reason(world), "concurrency_full");
  await world.release((await world.inFlight()).map((job) => ({ job, ok: false })));
  await world.route();
  t.is(await reason(world), "breaker_open");
  await world.pool.query("select dispatch_policy.hold('p', 'a', now() + interval '1 hour', by => 'job')");
  t.is(await reason(world), "held");
  await world.table("partitions").set({ held_until: () => "now()", breaker_until: () => "now()" });
  t.is(await world.passes(2), 1);
  t.is(await reason(world), "probing");
});

test("one whose job goes waits for nothing", async (t) => {
  const world = await full(t, one);
  await world.release(await world.inFlight());
  t.is((await world.admit()).admitted, 1);
  t.is(await reason(world), null);
});

test("one that moves to other limits no longer shows what it waited for", async (t) => {
  const world = await full(t, one);
  await world.stage("a", { gates: [concurrency(1, { name: "other", scope: "policy" })] });
  await world.route();
  t.is(await reason(world), null);
});

/** Of each partition the reason with its gate, and those that this gate's kind can give. */
async function gatesBeside(world: Engine, gates: readonly TestGate[]) {
  const { rows } = await world.pool.query(
    "select partition, reason, blocked_on, denied_reason from dispatch_policy.partitions order by partition",
  );
  const ofKind = { throttle: ["throttle_empty", "rate_zero"], ahead: ["ahead_full"] } as const;
  return rows.map((row) => {
    const kind =
      row.blocked_on === "ahead" ? "ahead" : gates.find(({ name }) => name === row.blocked_on)?.kind;
    const possible: readonly (string | null)[] =
      kind === undefined
        ? [null, "paused", "held", "breaker_open", "probing", "strict_order", "tick_budget", "batch"]
        : kind === "throttle" || kind === "ahead"
          ? ofKind[kind]
          : [`${kind}_full`, "max_zero"];
    return { ...row, possible };
  });
}

test("of several gates without room, the reason is that of the gate beside it", async (t) => {
  const gates = [throttle(1, { per: 3600 }), concurrency(1, { name: "all", scope: "policy" })];
  const world = await engine(t, { gates });
  await world.stage(["a", "a", "b"]);
  t.is(await world.passes(), 1);
  const row = (partition: string) => world.partition(partition);
  const shown = async () => (await gatesBeside(world, gates)).map((one) => [one.reason, one.blocked_on]);
  t.deepEqual(await shown(), [
    ["throttle_empty", "throttle"],
    ["concurrency_full", "all"],
  ]);
  t.is((await row("a")).blocked_on, (await world.limiter("throttle", "a")).id);
  await world.pool.query("select dispatch_policy.pause('p')");
  t.deepEqual(await shown(), [
    ["paused", null],
    ["paused", null],
  ]);
});

test("the history has the reason with the gate that gave it", async (t) => {
  const world = await engine(t, {
    gates: [throttle(1, { per: 3600 }), concurrency(5, { name: "all", scope: "policy" })],
  });
  await world.table("policies").set({ history_kept_for: 3600 });
  await world.stage(["a", "a"]);
  await world.passes();
  await world.pool.query(`select dispatch_policy.set_limit('p', 'all', '{"max": 0}')`);
  await world.pool.query("select dispatch_policy.set_limit('p', 'throttle', '{\"rate\": 1}')");
  await world.passes(2);
  await world.readEvents();
  const reasons = await world.table("waits").all({ reason: (its) => `${its} is not null` });
  t.deepEqual([...new Set(reasons.map((one) => one.reason))], ["throttle_empty:throttle"]);
});

test("whatever happens, a reason stands beside its own gate", async (t) => {
  const seed = seedOf(t);
  const { below, chance, pick } = random(seed);
  const of = (partition: string) => String(partition.charCodeAt(0) % 2);
  const all = [
    throttle(1, { per: 3600 }),
    throttle(2, { name: "other", per: 60 }),
    concurrency(1, { name: "own" }),
    throttle(2, { name: "account-rate", per: 600, scope: of }),
    concurrency(2, { name: "account", scope: of }),
    concurrency(3, { name: "policy", scope: "policy" }),
    throttle(3, { name: "policy-rate", per: 600, scope: "policy" }),
  ];
  for (let round = 0; round < 4; round++) {
    const gates = all.filter(() => chance(0.6));
    const world = await engine(t, { gates, policy: `p${round}`, ...(chance(0.5) ? { ahead: 4 } : {}) });
    const name = `p${round}`;
    for (let step = 0; step < 20; step++) {
      const what = below(6);
      if (what <= 1)
        await world.stage(Array.from({ length: 1 + below(6) }, () => pick(["a", "b", "c", "d"])));
      if (what === 2) await world.finish((await world.inFlight()).slice(0, 2));
      if (what === 3 && gates.length > 0) {
        const gate = pick(gates);
        const set = gate.kind === "throttle" ? { rate: 0 } : { max: 0 };
        await (chance(0.5)
          ? world.pool.query("select dispatch_policy.set_limit($1, $2, $3)", [name, gate.name, set])
          : world.pool.query("select dispatch_policy.clear_limit($1, $2)", [name, gate.name]));
      }
      if (what === 4)
        await world.pool.query(`select dispatch_policy.${pick(["pause", "resume"])}($1)`, [name]);
      await world.passes(2);
      for (const { possible, ...row } of await gatesBeside(world, gates))
        t.true(possible.includes(row.reason), JSON.stringify(row));
    }
  }
});
