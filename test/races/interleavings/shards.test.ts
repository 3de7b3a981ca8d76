// Limiters that are shared by partitions of several shards: who is first in line goes, whoever ticks its shard.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, type Session, throttle, until } from "../../helpers/engine.ts";

const oneSlot = [concurrency(1, { name: "all", scope: "policy" })];

/** A job of the shard eu holds the only slot, and this many partitions of us wait before one of eu. */
async function crowded(t: ExecutionContext, waiting: number): Promise<Engine> {
  const world = await engine(t, { gates: oneSlot });
  const keys = Array.from({ length: waiting }, (_, n) => `us${n}`);
  await world.stage("holder", { shard: "eu" });
  await world.route();
  t.is((await world.admit({ shard: "eu" })).admitted, 1);
  await world.stage(keys, { shard: "us" });
  await world.stage("eu", { shard: "eu" });
  await world.route();
  for (const shard of ["us", "eu"]) t.is((await world.admit({ shard, claim: 100 })).admitted, 0);
  await comesFirst(world, "us");
  return world;
}

/** Whoever waits in this shard goes before those of the others. */
async function comesFirst(world: Engine, shard: string): Promise<void> {
  await world.table("partitions").set({ fair_key: (its) => `${its} - 1e6` }, { shard });
}

/** Whoever this is holds the lease of the shard, or has lost it by now. */
async function lead(world: Engine, shard: string, holder: string, ttl = "1 minute"): Promise<void> {
  const leases = world.table("leases");
  const place = { policy: world.policy, shard };
  const lease = { holder, expires_at: () => `clock_timestamp() + interval '${ttl}'` };
  if ((await leases.set(lease, place)) === 0) await leases.add({ ...place, ...lease });
}

/** What the loops are told from now on. */
async function heard(
  world: Engine,
): Promise<{ session: Session; said: { shard?: string; vacant?: boolean }[] }> {
  const session = await world.session();
  const said: { shard?: string; vacant?: boolean }[] = [];
  session.on("notification", ({ payload }) => void said.push(JSON.parse(payload ?? "")));
  await session.query("listen dispatch_policy");
  return { session, said };
}

async function waiting(world: Engine, shard: string): Promise<number> {
  return world.table("partitions").count({ shard, blocked_on: (its) => `${its} is not null` });
}

for (const [what, ttl] of [
  ["that is led", "1 minute"],
  ["that nobody leads", null],
  ["whose leader has died", "-1 second"],
] as const) {
  test(`who is first in line goes in another shard's pass, in a shard ${what}`, async (t) => {
    const world = await crowded(t, 20);
    await lead(world, "eu", "one");
    if (ttl) await lead(world, "us", "other", ttl);
    await world.release(await world.inFlight("holder"));

    t.is((await world.admit({ shard: "eu", bounded: true })).admitted, 1);
    t.is(await waiting(world, "us"), 19);
    t.is(await waiting(world, "eu"), 1);
  });
}

test("partitions of a shard that nobody leads are there for whoever comes to lead it", async (t) => {
  const world = await crowded(t, 1);
  await world.stage("us0", { shard: "us" });
  await lead(world, "eu", "one");
  const { session, said } = await heard(world);
  await world.pool.query("select dispatch_policy.set_limit('p', 'all', '{\"max\": 3}')");
  await world.table("policies").set({ batch_size: 1 });
  await world.release(await world.inFlight("holder"));

  await world.route();
  t.is((await world.admit({ shard: "eu", bounded: true })).admitted, 2, "the first of us0, and that of eu");
  await world.release(await world.inFlight("eu"));
  await session.query("select");
  t.like(
    said.find(({ shard }) => shard),
    { shard: "us", vacant: true },
  );
  const { rows } = await world.pool.query(
    "select shard from dispatch_policy_internal._lease('other', '{p}', null, '1 minute', true) where leads",
  );
  t.true(rows.some(({ shard }) => shard === "us"));
  t.is((await world.admit({ shard: "us" })).admitted, 1);
});

test("a tick that ignores the ahead bound stays in its shard, and leaves word for the others", async (t) => {
  const world = await crowded(t, 3);
  await world.release(await world.inFlight("holder"));
  t.is((await world.admit({ shard: "eu" })).admitted, 1);
  t.is((await world.inFlight("eu")).length, 1);
  await world.release(await world.inFlight("eu"));
  t.is((await world.admit({ shard: "eu" })).admitted, 0);
  t.is((await world.admit({ shard: "us" })).admitted, 1);
});

test("a pass tells the loop of another shard, and no other, if a partition that it has called goes on at a time", async (t) => {
  const world = await crowded(t, 3);
  await world.stage("us0", { shard: "us", runAt: new Date(Date.now() + 3_600_000) });
  await world.route();
  await comesFirst(world, "us");
  await world.table("partitions").set({ fair_key: -2e9 }, { key: "us0" });
  await lead(world, "eu", "one");
  await lead(world, "us", "other");
  await world.release(await world.inFlight("holder"));
  const { session, said } = await heard(world);

  t.is((await world.admit({ shard: "eu", bounded: true })).admitted, 1);
  await session.query("select");
  t.deepEqual(said, [{ schema: "dispatch_policy", policy: "p", shard: "us" }] as never);
});

test("a pass that calls partitions of its own shard, or some that have nothing left, tells nobody", async (t) => {
  for (const shard of ["us", "eu"]) {
    const world = await crowded(t, 3);
    await lead(world, shard, "other");
    await world.release(await world.inFlight("holder"));
    const { session, said } = await heard(world);

    t.is((await world.admit({ shard, bounded: true })).admitted, 1);
    await session.query("select");
    t.deepEqual(said, []);
  }
});

/** A bucket that all shards share, emptied, and a dear job of shard us that waits for its tokens. */
async function emptyBucket(t: ExecutionContext): Promise<Engine> {
  const world = await engine(t, {
    gates: [throttle(1, { per: 3600, burst: 10, name: "all", scope: "policy" })],
  });
  await world.stage("holder", { shard: "eu", cost: 10 });
  await world.route();
  t.is((await world.admit({ shard: "eu" })).admitted, 1);
  await world.stage("us", { shard: "us", cost: 8 });
  return world;
}

test("a shared bucket serves who is first in line, though nobody ticks its shard", async (t) => {
  const world = await emptyBucket(t);
  await world.route(); // it has been in line for longer, too
  await world.stage("eu", { shard: "eu", cost: 2 });
  await world.route();
  for (const shard of ["us", "eu"]) t.is((await world.admit({ shard })).admitted, 0);
  await comesFirst(world, "us");
  const from = Date.now();
  const pass = async (hours: number) => {
    const now = new Date(from + hours * 3_600_000);
    return (await world.admit({ shard: "eu", now, bounded: true })).admitted;
  };
  await lead(world, "eu", "one", "1 day");
  for (const again of [0, 0.01]) t.is(await pass(2.1 + again), 0, "its tokens are kept for us");
  t.is(await pass(8.1), 1);
  t.is((await world.inFlight("us")).length, 1);
  t.is(await pass(10.2), 1);
});

test("a freed row of a shared bucket with too few tokens is looked at once, and then at their time", async (t) => {
  const world = await emptyBucket(t);
  await world.route();
  t.is((await world.admit({ shard: "us" })).admitted, 0);
  const { policy_id, id } = await world.limiter("all");
  await world.table("freed").add({ policy_id, limiter_id: id });
  const now = Date.now() + 3_600_000;
  t.is((await world.admit({ shard: "eu", bounded: true, now: new Date(now) })).admitted, 0);
  t.is(await world.table("freed").count(), 0);
  t.true((await world.limiter("all")).wake_at.getTime() > now + 6.9 * 3_600_000);
});

test("a leader keeps its shards while their partitions wait, and another can take them over", async (t) => {
  const world = await engine(t, { gates: oneSlot });
  const bid = async (holder: string, shards: string[] | null, ttl = "1 minute") => {
    const text =
      "select shard from dispatch_policy_internal._lease($1, '{p}', $2, $3::interval, true) where leads order by 1";
    return (await world.pool.query(text, [holder, shards, ttl])).rows.map(({ shard }) => shard);
  };
  await world.stage(["a", "b"], { shard: "eu" });
  t.deepEqual(await bid("one", null), ["default", "eu"]);
  await world.route();
  t.is((await world.admit({ shard: "eu" })).admitted, 1);
  await world.admit({ shard: "eu" });
  t.is(await waiting(world, "eu"), 1);

  t.deepEqual(await bid("one", null, "0"), []);
  t.deepEqual(await bid("other", null), ["default", "eu"], "the first one has died");
  await world.pool.query("select dispatch_policy_internal._step_down('other')");
  t.deepEqual(await bid("third", null), ["default", "eu"], "the second one has stopped");
});

test("a shard is forgotten with its last partition", async (t) => {
  const world = await engine(t, { gates: oneSlot });
  await world.stage("a", { shard: "eu" });
  await lead(world, "eu", "one");
  await world.route();
  await world.admit({ shard: "eu" });
  await world.finish(await world.inFlight());
  await world.passes();
  await world.admit({ shard: "eu" });
  const collect = () =>
    world.pool.query(
      "select dispatch_policy_internal._collect_partitions(clock_timestamp() + interval '2 days', '1 day')",
    );
  const shards = () => world.table("leases").count({ shard: "eu" });
  t.is(await shards(), 1);
  await collect();
  t.is(await shards(), 0);
});

test("of shards that are not led any more, only those with something to do have no leader", async (t) => {
  const world = await engine(t, { gates: oneSlot });
  await lead(world, "old", "one", "-1 second");
  const leases = async () =>
    (
      await world.pool.query(
        "select shard from dispatch_policy_internal._lease('', '{p}', null, '0', false) order by 1",
      )
    ).rows;
  t.deepEqual(await leases(), [{ shard: "default" }]);
  await world.stage("a", { shard: "old" });
  t.deepEqual(await leases(), [{ shard: "default" }, { shard: "old" }]);
});

test("a policy that is switched off tells the loops of all shards that it wakes", async (t) => {
  const world = await crowded(t, 3);
  await world.pool.query("select dispatch_policy.switch_policy('p', false)");
  const { session, said } = await heard(world);
  await world.route();
  await until("the loop of us is told", async () => {
    await session.query("select");
    return said.some(({ shard }) => shard === "us");
  });
  t.is((await world.admit({ shard: "us" })).admitted, 3);
});
