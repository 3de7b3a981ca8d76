// Jobs that take several slots: releases, limits and newcomers that come at the moment when it is decided who fits.
import test, { type ExecutionContext } from "ava";
import { type Engine, engine, type Session, slots } from "../../helpers/engine.ts";

const NOTHING_LEFT = { staged: 0, arrivals: 0, in_flight: 0, counters: 0, reserved: 0, notes: 0, blocked: 0 };
const all = (max: number) => [slots(max, { name: "all", scope: "policy" })];

/** Of four slots `taken` are taken by cheap jobs, and a job that takes three waits. */
async function dearOneWaits(t: ExecutionContext, taken: number): Promise<Engine> {
  const world = await engine(t, { gates: all(4) });
  await world.stage(["a", "b", "c", "d"].slice(0, taken));
  t.is(await world.passes(), taken);
  await world.stage("dear", { takes: 3 });
  t.is(await world.passes(2), 0);
  return world;
}

async function underWay(world: Engine): Promise<Session> {
  const session = await world.session();
  await session.query("begin");
  return session;
}

const isIn = async (world: Engine, partition: string) => (await world.inFlight(partition)).length === 1;

async function endsWell(t: ExecutionContext, world: Engine): Promise<void> {
  t.is(await world.wrongCounters(), 0);
  await world.drain();
  t.deepEqual(await world.leftovers(), NOTHING_LEFT);
}

for (const passesOn of [true, false])
  test(`two releases at once, of which each by itself leaves too few slots${passesOn ? ", and each passes on" : ""}`, async (t) => {
    const world = await dearOneWaits(t, 3);
    await world.waitsLong();
    const [one, other] = (await world.inFlight()) as [string, string];
    const first = await underWay(world);
    t.deepEqual(await world.release([one], first, { passesOn }), [one]);
    const second = await underWay(world);
    const waits = world.release([other], second, { passesOn });
    await world.waitsForLock(second);
    await first.query("commit");
    t.deepEqual(await waits, [other]);
    await second.query("commit");
    t.is(await world.passes(2), passesOn ? 0 : 1);
    t.true(await isIn(world, "dear"));
    t.is((await world.limiter("all")).in_flight, 4);
    await endsWell(t, world);
  });

test("a newcomer whose pass meets the release that makes room for the dear job", async (t) => {
  const world = await dearOneWaits(t, 2);
  await world.waitsLong();
  const releasing = await underWay(world);
  await world.release((await world.inFlight()).slice(0, 1), releasing);
  await world.stage("new");
  await world.route();
  const ticking = await underWay(world);
  const pass = world.admit({ as: ticking });
  await world.waitsForLock(ticking);
  await releasing.query("commit");
  await pass;
  await ticking.query("commit");
  await world.passes(3);
  t.true(await isIn(world, "dear"), "its turn came first");
  t.false(await isIn(world, "new"));
  t.is((await world.limiter("all")).in_flight, 4);
  await endsWell(t, world);
});

test("a release passes slots on beside a limit that is lowered below what the next job takes", async (t) => {
  const world = await dearOneWaits(t, 2);
  const lowering = await underWay(world);
  await lowering.query("select dispatch_policy.set_limit('p', 'all', '{\"max\": 2}')");
  await world.release((await world.inFlight()).slice(0, 1), world.pool, { passesOn: true });
  t.true(await isIn(world, "dear"), "the lower limit is not committed yet");
  await lowering.query("commit");
  await world.stage(["dear", "behind"], { takes: 3 });
  await world.stage("cheap");
  t.is(await world.passes(2), 0);
  await world.finish(await world.inFlight());
  t.is(await world.passes(2), 1, "the cheap one fits");
  t.deepEqual((await world.partition("behind")).denied_reason, "cost_over_max");
  await world.pool.query("select dispatch_policy.clear_limit('p', 'all')");
  t.is(await world.passes(2), 1, "one of three beside the cheap one");
  await endsWell(t, world);
});

test("a limit is raised while a pass still goes by the lower one, for which a job takes too many", async (t) => {
  const world = await engine(t, { gates: all(4) });
  await world.stage("dear", { takes: 3 });
  await world.pool.query("select dispatch_policy.set_limit('p', 'all', '{\"max\": 2}')");
  await world.route();
  const ticking = await underWay(world);
  t.deepEqual((await world.admit({ as: ticking })).denied, { cost_over_max: 1 });
  await world.pool.query("select dispatch_policy.clear_limit('p', 'all')");
  await world.route();
  await ticking.query("commit");
  t.is(await world.passes(2), 1);
  await endsWell(t, world);
});

test("the dear job is removed while a pass makes others wait behind it", async (t) => {
  const world = await engine(t, { gates: all(4) });
  await world.stage(["a", "b"]);
  t.is(await world.passes(), 2);
  const [id] = await world.stage("dear", { takes: 3 });
  t.is(await world.passes(), 0);
  await world.stage("behind");
  await world.route();
  const ticking = await underWay(world);
  t.is((await world.admit({ as: ticking })).admitted, 0);
  await world.pool.query("select dispatch_policy.remove(array[$1::bigint])", [id]);
  await world.route();
  await ticking.query("commit");
  await world.passes(3);
  t.true(await isIn(world, "behind"));
  await endsWell(t, world);
});

test("cheap jobs that are locked while they are called leave their slots to nobody who takes more", async (t) => {
  const world = await dearOneWaits(t, 4);
  await world.stage("behind");
  t.is(await world.passes(2), 0);
  const holder = await underWay(world);
  await world.table("partitions", holder).lock({ key: (its) => `${its} = 'dear'` });
  await world.release((await world.inFlight()).slice(0, 1), world.pool, { passesOn: true });
  await world.passes(2);
  await holder.query("rollback");
  await world.finish((await world.inFlight()).slice(0, 3));
  await world.passes(4);
  t.true(await isIn(world, "dear"));
  t.true((await world.limiter("all")).in_flight <= 4);
  await endsWell(t, world);
});

test("one that fits, first in line but behind the dear job by its priority, is not looked at without end", async (t) => {
  const world = await engine(t, { gates: all(6), halfLifeSeconds: null });
  await world.stage(["a", "b", "c"]);
  t.is(await world.passes(), 3);
  await world.stage("dear", { takes: 5 });
  await world.stage("behind", { priority: 5, runAt: new Date(Date.now() - 60_000) });
  t.is(await world.passes(2), 0);
  const { rows } = await world.pool.query(
    "select key from dispatch_policy_internal.partitions where blocked_on is not null order by fair_key, due_at",
  );
  t.deepEqual(
    rows.map(({ key }) => key),
    ["behind", "dear"],
  );
  await world.finish((await world.inFlight()).slice(0, 1));
  t.is(await world.passes(2), 0, "the dear one's turn comes first, and it lacks a slot");
  t.is(
    Number(await world.number("select count(*) from dispatch_policy_internal.freed")),
    0,
    "nobody has to look at once",
  );
  await world.finish((await world.inFlight()).slice(0, 1));
  t.is(await world.passes(2), 1);
  t.true(await isIn(world, "dear"));
  await endsWell(t, world);
});
