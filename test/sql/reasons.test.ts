// The reason that is shown is what holds a partition back now.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, type TestGate, throttle } from "../helpers/engine.ts";

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
  await world.pool.query("update dispatch_policy._private_partitions set held_until = now()");
  t.is(await world.passes(2), 1);
  t.is(await reason(world), "probing");
});

test("one that is woken waits for nothing", async (t) => {
  const world = await full(t, one);
  await world.release(await world.inFlight());
  await world.route();
  t.is(await reason(world), null);
});

test("one that moves to other limits no longer shows what it waited for", async (t) => {
  const world = await full(t, one);
  await world.stage("a", { gates: [concurrency(1, { name: "other", scope: "policy" })] });
  await world.route();
  t.is(await reason(world), null);
});
