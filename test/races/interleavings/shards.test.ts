// Limiters that are shared by partitions of several shards: their room must reach a shard that somebody ticks.
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

/** The holder of the only slot frees it, and the loop of the shard eu routes that. */
async function releaseHolder(world: Engine): Promise<void> {
  await world.release(await world.inFlight("holder"));
  await world.route(world.pool, "eu");
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
  ["that nobody leads", null],
  ["whose leader has died", "-1 second"],
] as const) {
  test(`partitions of a shard ${what} use up no room`, async (t) => {
    const world = await crowded(t, 20);
    await lead(world, "eu", "one");
    if (ttl) await lead(world, "us", "other", ttl);

    await releaseHolder(world);
    t.is((await world.admit({ shard: "eu" })).admitted, 1);
  });
}

test("partitions of a shard that nobody leads are there for whoever comes to lead it", async (t) => {
  const world = await crowded(t, 3);
  await lead(world, "eu", "one");
  const { session, said } = await heard(world);

  await releaseHolder(world);
  await world.admit({ shard: "eu" });
  await session.query("select");
  t.like(
    said.find(({ shard }) => shard),
    { shard: "us", vacant: true },
  );
  const { rows } = await world.pool.query(
    "select shard from dispatch_policy_internal._lease('other', '{p}', null, '1 minute', true) where leads",
  );
  t.true(rows.some(({ shard }) => shard === "us"));
  await world.release(await world.inFlight("eu"));
  await world.route(world.pool, "us");
  t.is((await world.admit({ shard: "us" })).admitted, 1);
});

test("a pass that ticks every shard offers room to all of them, in fair order", async (t) => {
  const world = await crowded(t, 3);
  await lead(world, "eu", "one");

  await world.release(await world.inFlight("holder"));
  await world.route();
  t.is(await waiting(world, "us"), 2);
  t.is(await waiting(world, "eu"), 1);
});

test("a router that wakes partitions of another loop's shard tells that loop, and no other", async (t) => {
  const world = await crowded(t, 3);
  await lead(world, "eu", "one");
  await lead(world, "us", "other");
  await world.release(await world.inFlight("holder"));
  const { session, said } = await heard(world);

  await world.route(world.pool, "eu");
  await session.query("select");
  t.deepEqual(said, [{ schema: "dispatch_policy", policy: "p", shard: "us" }] as never);
  t.is((await world.admit({ shard: "eu" })).admitted, 0);
  t.is((await world.admit({ shard: "us" })).admitted, 1);
});

test("a router that wakes partitions of its own shard tells nobody", async (t) => {
  const world = await crowded(t, 3);
  await lead(world, "us", "other");
  await world.release(await world.inFlight("holder"));
  const { session, said } = await heard(world);

  await world.route(world.pool, "us");
  await session.query("select");
  t.deepEqual(said, []);
});

test("room that was offered to a shard whose leader then died goes to the next in line", async (t) => {
  const world = await crowded(t, 20);
  await lead(world, "eu", "one");
  await lead(world, "us", "other");
  await releaseHolder(world);
  t.is((await world.admit({ shard: "eu" })).admitted, 0, "the first in line is of us");
  t.is(await waiting(world, "us"), 19);

  await lead(world, "us", "other", "-1 second");
  await world.route(world.pool, "eu");
  t.is((await world.admit({ shard: "eu" })).admitted, 1);
});

test("a lease that runs out while the router works costs one pass", async (t) => {
  const world = await crowded(t, 20);
  await lead(world, "eu", "one");
  await lead(world, "us", "other");
  await world.release(await world.inFlight("holder"));
  const routing = await world.session();
  await routing.query("begin");
  await world.route(routing, "eu");
  await lead(world, "us", "other", "-1 second");
  await routing.query("commit");

  await world.route(world.pool, "eu");
  t.is((await world.admit({ shard: "eu" })).admitted, 1);
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

test("tokens of a shared bucket are not kept for a shard that nobody ticks", async (t) => {
  const world = await emptyBucket(t);
  await world.stage("eu", { shard: "eu", cost: 2 });
  await world.route();
  for (const shard of ["us", "eu"]) t.is((await world.admit({ shard })).admitted, 0);
  await comesFirst(world, "us");

  const later = new Date(Date.now() + 2.1 * 3_600_000);
  await lead(world, "eu", "one", "1 day");
  await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000, false, true, 'eu')", [
    later,
  ]);
  t.is((await world.admit({ shard: "eu", now: later })).admitted, 1);
});

test("a shared bucket with tokens that only a shard nobody ticks waits for does not wake the router in vain", async (t) => {
  const world = await emptyBucket(t);
  await world.route();
  t.is((await world.admit({ shard: "us" })).admitted, 0);
  const { policy_id, id } = await world.limiter("all");
  await world.table("freed").add({ policy_id, limiter_id: id });
  const later = Date.now() + 3_600_000;
  for (const now of [new Date(later), new Date(later + 10)])
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000, false, true, 'eu')", [
      now,
    ]);
  t.is((await world.limiter("all")).wake_at, null);
  t.is(await world.table("freed").count(), 0);
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
  await world.route(world.pool, "eu");
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
  await world.route(world.pool, "eu");
  await until("the loop of us is told", async () => {
    await session.query("select");
    return said.some(({ shard }) => shard === "us");
  });
  t.is((await world.admit({ shard: "us" })).admitted, 3);
});
