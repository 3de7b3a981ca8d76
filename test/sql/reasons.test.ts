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

async function reason(world: Engine): Promise<string | null> {
  const { rows } = await world.pool.query(
    "select reason from dispatch_policy.partitions where partition = 'a'",
  );
  return rows[0].reason;
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
