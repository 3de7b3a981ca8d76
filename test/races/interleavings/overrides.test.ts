// Overrides that begin, end or are taken back while a tick goes by what held before, and makes somebody wait.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, type Session, throttle } from "../../helpers/engine.ts";
import { inside } from "../../helpers/inside.ts";

const HALT = "select dispatch_policy.set_limit('p', 'all', '{\"max\": 0}')";
const RAISE = "select dispatch_policy.set_limit('p', 'all', '{\"max\": 5}')";
const CLEAR = "select dispatch_policy.clear_limit('p', 'all')";

const all = (max: number) => [concurrency(max, { name: "all", scope: "policy" })];

/** A cap of all of a policy, whose limiter is there, and a job of partition a that no pass has looked at yet. */
async function waiting(t: ExecutionContext, max: number): Promise<Engine> {
  const world = await engine(t, { gates: all(max) });
  await world.stage("first");
  t.is(await world.passes(), max > 0 ? 1 : 0);
  await world.finish(await world.inFlight());
  await world.stage("a");
  await world.route();
  return world;
}

/** A tick that admits nobody, and whose transaction is open. */
async function tickUnderWay(t: ExecutionContext, world: Engine, now: Date | null = null): Promise<Session> {
  const ticking = await world.session();
  await ticking.query("begin");
  t.is((await world.admit({ as: ticking, now })).admitted, 0);
  return ticking;
}

/** Every partition waits for its limiter. */
async function allWait(world: Engine): Promise<void> {
  await world.table("partitions").set({ denied_until: "infinity", blocked_on: () => "limiter_ids[1]" });
}

/** Since when the loop should look again; null: not before something happens. */
async function looksAgainAt(world: Engine): Promise<unknown> {
  const text = "select dispatch_policy_internal._next_eligible_at('p', 'default') as at";
  return (await inside(world.pool, text))[0].at;
}

for (const [how, change] of Object.entries({ cleared: CLEAR, replaced: RAISE })) {
  test(`a halt is ${how} while a tick that goes by it makes a partition wait`, async (t) => {
    const world = await waiting(t, 1);
    await world.pool.query(HALT);
    const ticking = await tickUnderWay(t, world);
    await world.pool.query(change);
    await world.route();
    t.is(await looksAgainAt(world), Number.NEGATIVE_INFINITY, "somebody may wait whom nobody sees");
    await ticking.query("commit");
    t.is(await world.passes(), 1);
    t.is(await looksAgainAt(world), null);
  });
}

test("an override for at once raises a cap while a tick that does not see it makes a partition wait", async (t) => {
  const world = await waiting(t, 0);
  const ticking = await tickUnderWay(t, world);
  await world.pool.query(RAISE);
  await world.route();
  await ticking.query("commit");
  t.is(await world.passes(), 2, "those of first and a");
});

for (const change of ["begins", "ends"] as const) {
  test(`an override ${change} while a tick that is before that makes a partition wait`, async (t) => {
    const world = await waiting(t, change === "begins" ? 0 : 1);
    const at = Date.now() + 60_000;
    await world.pool.query(
      change === "begins"
        ? `select dispatch_policy.set_limit('p', 'all', '{"max": 5}', "from" => $1)`
        : `select dispatch_policy.set_limit('p', 'all', '{"max": 0}', until => $1)`,
      [new Date(at)],
    );
    const ticking = await tickUnderWay(t, world, new Date(at - 1000));
    const later = new Date(at + 1000);
    const route = () => world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [later]);
    await route();
    await ticking.query("commit");
    await route();
    t.is((await world.admit({ now: later })).admitted, change === "begins" ? 2 : 1);
  });
}

for (const change of ["begins", "ends"] as const) {
  test(`an override that a tick ahead of the clock takes for one that ${change} wakes those who wait at its time`, async (t) => {
    const world = await waiting(t, change === "begins" ? 0 : 1);
    const at = Date.now() + 3_600_000;
    await world.pool.query(
      change === "begins"
        ? `select dispatch_policy.set_limit('p', 'all', '{"max": 5}', "from" => $1)`
        : `select dispatch_policy.set_limit('p', 'all', '{"max": 0}', until => $1)`,
      [new Date(at)],
    );
    t.is(await world.passes(), 0);
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [new Date(at + 1000)]);
    t.is(await world.table("freed").count(), 1, "by that time it may go");
    t.is(await world.passes(), 0, "by the clock it may not");
    t.deepEqual(await looksAgainAt(world), new Date(at));
    const ahead = "select dispatch_policy_internal._next_eligible_at('p', null, false, $1) as at";
    t.is((await inside(world.pool, ahead, [new Date(at + 1000)]))[0].at, null, "and not by that time again");
    const ago = (its: string) => `${its} - interval '2 hours'`;
    await world
      .table("overrides")
      .set({ from_at: ago, until_at: ago, announce_at: ago, announce_again_at: ago });
    t.is(await world.passes(), change === "begins" ? 2 : 1);
    t.is(await looksAgainAt(world), null);
  });
}

test("two overrides end one after the other while one tick is under way", async (t) => {
  const world = await waiting(t, 1);
  await world.pool.query(HALT);
  const ticking = await tickUnderWay(t, world);
  await world.pool.query(RAISE);
  await world.route();
  await world.pool.query(CLEAR);
  await world.route();
  await ticking.query("commit");
  t.is(await world.passes(), 1);
  t.is(await looksAgainAt(world), null);
});

test("an override of all keys is announced for those whose limiter is free, and later for the others", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["a", "a", "b", "b"]);
  t.is(await world.passes(2), 2);
  const app = await world.session();
  await app.query("begin");
  await world.table("limiters", app).lock({ scope_key: "a" }, "no key update");
  await world.pool.query("select dispatch_policy.set_limit('p', 'concurrency', '{\"max\": 2}')");
  await world.route();
  const { to_announce } = await world.table("overrides").one();
  t.deepEqual(to_announce, [(await world.limiter("concurrency", "a")).id]);
  t.is(
    await world.table("freed").count({ limiter_id: (await world.limiter("concurrency", "b")).id }),
    1,
    "b may be looked at",
  );
  await app.query("commit");
  t.is(await world.passes(2), 2);
});

test("a limiter that is gone is announced no more", async (t) => {
  const world = await waiting(t, 1);
  const app = await world.session();
  await app.query("begin");
  await world.table("limiters", app).lock({ gate: "all" }, "no key update");
  await world.pool.query(HALT);
  await world.route();
  t.is(await looksAgainAt(world), Number.NEGATIVE_INFINITY);
  await world.table("limiters", app).remove({ gate: "all" });
  await app.query("commit");
  await world.route();
  t.not(await looksAgainAt(world), Number.NEGATIVE_INFINITY);
});

test("set_limit and clear_limit in an open transaction delay no tick and no release", async (t) => {
  const world = await engine(t, { gates: all(2) });
  await world.stage(["a", "a", "a"]);
  t.is(await world.passes(), 2);
  const [first] = await world.inFlight();
  const operator = await world.session();
  await operator.query("begin");
  for (const change of [HALT, CLEAR, HALT]) await operator.query(change);
  t.deepEqual(await world.finish([first!]), [first]);
  t.is(await world.passes(), 1, "by what holds until the commit");
  await operator.query("commit");
  await world.finish(await world.inFlight());
  await world.stage("a");
  t.is(await world.passes(2), 0);
});

test("two changes of one limit come one after the other: the later one replaces the earlier", async (t) => {
  const world = await waiting(t, 1);
  const [one, other] = [await world.session(), await world.session()];
  await one.query("begin");
  await one.query(HALT);
  const raise = other.query(RAISE);
  await world.waitsForLock(other);
  await one.query("commit");
  await raise;
  t.is(await world.number("select count(*)::int from dispatch_policy.overrides"), 1);
});

test("whoever waits for an override of a policy that is switched off is told once it is on", async (t) => {
  const world = await waiting(t, 1);
  await world.pool.query(HALT);
  await world.route();
  t.is((await world.admit()).admitted, 0);
  await world.pool.query("select dispatch_policy.switch_policy('p', false)");
  await world.pool.query(CLEAR);
  t.is(await looksAgainAt(world), null, "a policy without limits has nothing to announce");
  await world.pool.query("select dispatch_policy.switch_policy('p', true)");
  t.is(await world.passes(), 1);
});

const BY_CONTEXT = (max: number) =>
  `select dispatch_policy.set_limit('p', 'concurrency', '{"max": ${max}}', "where" => '{"plan": "free"}')`;
const FREE = { context: { plan: "free" } };

test("a limit by context that is set while the router makes a partition with it holds for that partition", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "a", "a"], FREE);
  const router = await world.session();
  await router.query("begin");
  t.is(await world.route(router), 1);
  await world.pool.query(BY_CONTEXT(1));
  await router.query("commit");
  t.is(await world.passes(3), 1);
});

test("so it does for a partition whose job is staged, or gets that context, before it is committed", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("b", { context: { plan: "pro" } });
  t.is(await world.passes(), 1);
  const operator = await world.session();
  await operator.query(`begin; ${BY_CONTEXT(1)}`);
  await world.stage(["a", "a", "b", "b"], FREE);
  t.is(await world.route(), 2);
  await operator.query("commit");
  t.is(await world.passes(3), 1, "one of a; b has one in flight");
});

test("a limit by context that is raised while a tick makes a partition wait wakes it once the tick is done", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["a", "a"], FREE);
  await world.route();
  t.is((await world.admit()).admitted, 1);
  await world.table("partitions").set({ denied_until: "-infinity", blocked_on: null });
  const ticking = await tickUnderWay(t, world);
  await world.pool.query(BY_CONTEXT(2));
  await world.route();
  t.is(await looksAgainAt(world), Number.NEGATIVE_INFINITY, "its limiter is locked: later");
  await ticking.query("commit");
  t.is(await world.passes(), 1);
});

/** Of how many limiters somebody has said that there may be room. */
const told = (world: Engine) =>
  world.number("select count(distinct limiter_id)::int from dispatch_policy_internal.freed");

test("limits of many keys that come while another is being announced are announced after it", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const keys = (of: string) => Array.from({ length: 700 }, (_, n) => `${of}${n}`);
  for (const [of, context] of [
    ["a", { plan: "free" }],
    ["b", { plan: "pro" }],
  ] as const)
    await world.stage([...keys(of), ...keys(of)], { context });
  await world.route();
  await allWait(world);
  await world.pool.query(BY_CONTEXT(2));
  await world.route();
  t.is(await told(world), 700, "all of a are among the first thousand");
  await world.pool.query(BY_CONTEXT(2).replace("free", "pro"));
  await world.route();
  t.is(await told(world), 700, "the first one's round comes to its end");
  await world.route();
  t.is(await told(world), 1000, "300 of b are among the first thousand");
  await world.route();
  t.is(await told(world), 1400);
  t.is(await world.route(), 0);
});

test("a limit of many keys that ends while its beginning is being announced wakes all who wait", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(Array.from({ length: 1500 }, (_, n) => `a${n}`));
  await world.route();
  await allWait(world);
  const end = Date.now() + 60_000;
  await world.pool.query(`select dispatch_policy.set_limit('p', 'concurrency', '{"max": 0}', until => $1)`, [
    new Date(end),
  ]);
  const route = (at: number) =>
    world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [new Date(at)]);
  await route(end - 1000);
  t.is(await told(world), 1000, "the first thousand are told that it holds");
  await world.table("freed").remove();
  for (let step = 0; step < 4; step++) await route(end + 1000);
  t.is(await told(world), 1500);
});

test("a context that brings another limit waits for who has the bucket locked, and counts from then on", async (t) => {
  const world = await engine(t, { gates: [throttle(10, { per: 10 })] });
  await world.pool.query(
    `select dispatch_policy.set_limit('p', 'throttle', '{"rate": 0}', "where" => '{"plan": "free"}')`,
  );
  await world.stage("a", FREE);
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await world.table("limiters", app).lock({ scope_key: "a" }, "no key update");
  await world.stage("a", { context: { plan: "pro" } });
  t.is(await world.route(), 0);
  t.is((await world.admit({})).admitted, 0, "nobody has gone by the new one");
  await app.query("commit");
  t.is(await world.passes(), 2);
});
