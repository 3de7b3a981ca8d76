// Room in a limiter must reach somebody who can use it, in fair order, whoever was told of it first.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, type Queryable, throttle } from "../../helpers/engine.ts";
import { inside } from "../../helpers/inside.ts";

/** One slot over the whole policy, held by a job of `holder`; `first` waits before `second`. */
async function oneSlotTaken(t: ExecutionContext, [first, second]: [string, string]): Promise<Engine> {
  const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await world.stage("holder");
  t.is(await world.passes(), 1);
  await world.stage([first, second]);
  t.is(await world.passes(2), 0);
  await wakesBefore(world, first, second);
  return world;
}

async function wakesBefore(world: Engine, ...keys: string[]): Promise<void> {
  for (const [place, key] of keys.entries()) {
    await world
      .table("partitions")
      .set({ fair_key: place - 1e6 }, { key, blocked_on: (its) => `${its} is not null` });
  }
}

test("a partition that went to sleep does not swallow the next partition's wake-up", async (t) => {
  const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await world.stage("a");
  t.is(await world.passes(), 1);
  t.is((await world.partition("a")).blocked_on, null);
  await world.stage("b");
  t.is(await world.passes(), 0);

  await world.release(await world.inFlight("a"));
  t.is(await world.passes(2), 1);
});

test("a wake-up spent on a drained partition is not lost for the next one", async (t) => {
  const world = await oneSlotTaken(t, ["drained", "waiting"]);
  await world.table("staged_jobs").remove({ partition_id: (await world.partition("drained")).id });

  await world.release(await world.inFlight("holder"));
  await world.passes(3);
  t.is((await world.inFlight("waiting")).length, 1);
});

test("a wake-up spent on a partition that is paused before its tick is not lost", async (t) => {
  const world = await oneSlotTaken(t, ["paused", "waiting"]);

  await world.release(await world.inFlight("holder"));
  await world.pool.query("select dispatch_policy.pause('p', partition => 'paused')");
  await world.passes(3);
  t.is((await world.inFlight("waiting")).length, 1);
});

test("a wake-up spent on a partition that is held before its tick is not lost", async (t) => {
  const world = await oneSlotTaken(t, ["held", "waiting"]);

  await world.release(await world.inFlight("holder"));
  await world.pool.query("select dispatch_policy.hold('p', 'held', now() + interval '1 hour')");
  await world.passes(3);
  t.is((await world.inFlight("waiting")).length, 1);
});

test("a wake-up spent on a partition whose other limiter is full is not lost", async (t) => {
  const region = concurrency(1, { name: "region", scope: (key) => (key === "w" ? "south" : key) });
  const all = concurrency(1, { name: "all", scope: "policy" });
  const world = await engine(t, { gates: [all] });
  await world.stage(["south", "south"], { gates: [{ ...region, keyOf: () => "south" }] });
  await world.passes();
  await world.stage("x");
  t.is(await world.passes(), 1, "both limiters are full");
  await world.stage("w", { gates: [region, all] });
  await world.stage("waiting");
  await world.passes(3);
  // by chance noted as waiting for the limiter that is freed
  const { id } = await world.limiter("all");
  await world.table("partitions").set({ blocked_on: id }, { key: "w" });
  await wakesBefore(world, "w", "waiting");

  await world.release(await world.inFlight("x"));
  await world.passes(4);
  t.is((await world.inFlight("waiting")).length, 1);
});

test("the slot of a job that was removed before it ran goes to whoever waits", async (t) => {
  const world = await oneSlotTaken(t, ["a", "b"]);
  const [job] = await world.inFlight("holder");
  await world.pool.query("select dispatch_policy.complete_jobs(array[$1::bigint])", [job]);

  const { rows } = await world.pool.query(
    "select job_id from dispatch_policy_internal._sweep_in_flight('0 seconds')",
  );
  await world.release(rows.map(({ job_id }) => job_id));
  t.is(await world.passes(), 1);
});

test("arrivals do not push a waiting partition back", async (t) => {
  const world = await engine(t, { gates: [concurrency(1000)], batchSize: 1 });
  const keys = Array.from({ length: 100 }, (_, i) => `k${i}`);
  for (let round = 0; round < 10; round++) await world.stage(keys);
  await world.route();
  for (let tick = 0; tick < 60; tick++) {
    await world.stage("k99");
    await world.passes(1, 5);
  }
  // 60 ticks of 5 partitions: three rounds over 100
  t.is((await world.inFlight("k0")).length, 3);
  t.is((await world.inFlight("k99")).length, 3);
});

test("a router beside another says busy, never that nothing is left", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const other = await world.session();
  await other.query("begin");
  t.is(await world.route(other), 0);
  await world.stage("a");

  t.is(await world.route(), -1);
  await other.query("commit");
  t.is(await world.route(), 1);
  t.is((await world.admit()).admitted, 1);
});

test("a router leaves the arrivals of a partition a tick has locked, and says so", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("a");
  await world.route();
  const ticking = await world.session();
  await ticking.query("begin");
  await world.admit({ as: ticking, bounded: true });
  await world.stage(["a", "b"]);

  t.is(await world.route(), 1, "one consumed, one left");
  await ticking.query("commit");
  t.is(await world.route(), 1);
  t.is((await world.admit()).admitted, 2);
});

test("waiters are woken in an order comparable across time, not by raw admits of different ages", async (t) => {
  const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await world.stage(["hot", "b", "c"].flatMap((key) => Array(90).fill(key)));
  await world.passes(5);
  // an hour ago and half-lives of a minute: really nothing
  const anHourAgo = () => "now() - interval '1 hour'";
  await world
    .table("partitions")
    .set(
      { decayed_admits: 1000, decayed_at: anHourAgo, fair_key: 1001, looked_at: anHourAgo },
      { key: "hot" },
    );
  const served: Record<string, number> = { hot: 0, b: 0, c: 0 };
  for (let slot = 0; slot < 120; slot++) {
    for (const key of Object.keys(served)) {
      const jobs = await world.inFlight(key);
      served[key]! += jobs.length;
      await world.release(jobs);
    }
    await world.passes();
  }
  for (const [key, jobs] of Object.entries(served)) t.true(jobs >= 30, `${key} of ${JSON.stringify(served)}`);
});

test("a limit overridden to 0 comes back by itself, and with it those who wait for it", async (t) => {
  const world = await engine(t, { gates: [concurrency(5, { name: "all", scope: "policy" })] });
  await world.stage("holder");
  t.is(await world.passes(), 1);
  await world.pool.query("select dispatch_policy.set_limit('p', 'all', $1, until => $2)", [
    { max: 0 },
    new Date(Date.now() + 3_600_000),
  ]);
  await world.stage(["a", "b"]);
  t.is(await world.passes(2), 0);
  t.not((await world.partition("a")).blocked_on, null);
  t.is((await world.partition("a")).denied_reason, "max_zero");

  const later = new Date(Date.now() + 3_601_000);
  await world.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [later]);
  t.is((await world.admit({ now: later })).admitted, 2);
});

test("the loop is told when an override ends", async (t) => {
  const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  const end = new Date(Date.now() + 3_600_000);
  await world.stage("a");
  await world.route();
  await world.pool.query("select dispatch_policy.set_limit('p', 'all', $1, until => $2)", [{ max: 0 }, end]);
  await world.passes(2);

  const [row] = await inside(
    world.pool,
    "select dispatch_policy_internal._next_eligible_at('p', 'default') as at",
  );
  t.deepEqual(row.at, end);
});

const shared = (rate: number, per: number, burst: number) => [
  throttle(rate, { per, burst, name: "all", scope: "policy" }),
];

/** Routes and admits every so many milliseconds for a while from `from` on. Returns which partition went when. */
async function watch(
  world: Engine,
  from: number,
  seconds: number,
  everyMs = 100,
): Promise<[number, string][]> {
  const went: [number, string][] = [];
  for (let ms = 0; ms <= seconds * 1000; ms += everyMs) {
    const now = new Date(from + ms);
    await world.pool.query("select dispatch_policy_internal._route($1, $2, 10000)", [world.policy, now]);
    if ((await world.admit({ now })).admitted === 0) continue;
    for (const partition of await world.admittedAt(now)) went.push([ms / 1000, partition]);
  }
  return went;
}

test("a freed row of a bucket with some tokens does not wake, pass after pass, a waiter that needs more", async (t) => {
  const world = await engine(t, { gates: shared(1, 3600, 10) });
  await world.stage(["a", "b", "c"], { cost: 9 });
  t.is(await world.passes(2), 1);
  const { policy_id, id } = await world.limiter("all");
  await world.table("freed").add({ policy_id, limiter_id: id });
  await world.passes(2);
  t.is(await world.table("freed").count(), 0);
  const visited = async () => (await world.table("partitions").all({}, "key")).map((one) => one.visited);
  const before = await visited();
  await world.passes(3);
  t.deepEqual(await visited(), before);
});

test("jobs that cost half a token go twice as often", async (t) => {
  const world = await engine(t, { gates: shared(1, 1, 1) });
  const keys = Array.from({ length: 9 }, (_, n) => `k${n}`);
  await world.stage(keys, { cost: 0.5 });
  const from = Date.now();
  const went = await watch(world, from, 3);
  t.is(went.length, 8, JSON.stringify(went));
});

test("a dear job gets its turn at a shared throttle, however many cheap ones wait", async (t) => {
  const world = await engine(t, { gates: shared(1, 1, 10) });
  await world.stage("dear", { cost: 7 });
  await world.stage(
    Array.from({ length: 100 }, (_, n) => `cheap${n % 5}`),
    { cost: 1 },
  );
  await world.stage(Array(3).fill("dear"), { cost: 7 });
  const went = await watch(world, Date.now(), 60, 500);
  t.is(went.filter(([, partition]) => partition === "dear").length, 4, JSON.stringify(went));
});

test("a tick behind the clock, for which an override has not begun, leaves the word that it has", async (t) => {
  const world = await oneSlotTaken(t, ["a", "b"]);
  await world.pool.query(`select dispatch_policy.set_limit('p', 'all', '{"max": 3}')`);
  await world.table("overrides").set({ from_at: () => "now() - interval '30 seconds'" });
  await world.route();
  t.is(await world.table("freed").count(), 1);
  t.is((await world.admit({ now: new Date(Date.now() - 60_000) })).admitted, 0);
  t.is(await world.table("freed").count(), 1);
  t.is((await world.admit()).admitted, 2);
});

test("a shared throttle whose first in line is locked is looked at again in a moment, and not at once", async (t) => {
  const world = await engine(t, { gates: shared(1, 1, 1) });
  const now = new Date(Date.now() + 10_000);
  await world.stage(["a", "b"]);
  t.is(await world.passes(2), 1);
  const other = await world.session();
  await other.query("begin");
  await world.table("partitions", other).lock({ blocked_on: (its) => `${its} is not null` });
  const { served, admitted } = await world.admit({ now });
  t.deepEqual([served, admitted], [0, 0]);
  t.deepEqual((await world.limiter("all")).wake_at, new Date(now.getTime() + 50));
  await other.query("rollback");
  t.is((await world.admit({ now: new Date(now.getTime() + 50) })).admitted, 1);
});

test("a tick ahead of the clock, for which an override has begun, leaves the times by the clock", async (t) => {
  const world = await engine(t, {
    gates: [concurrency(1, { name: "cap", scope: "policy" }), ...shared(1, 60, 1)],
  });
  await world.stage(["a", "b"]);
  t.is(await world.passes(2), 1);
  await world.release(await world.inFlight());
  await world.passes(2);
  const { wake_at, id, policy_id } = await world.limiter("all");
  t.not(wake_at, null);
  const begins = Date.now() + 3_600_000;
  for (const gate of ["all", "cap"])
    await world.pool.query(`select dispatch_policy.set_limit('p', $1, $2, "from" => $3)`, [
      ...[gate, gate === "all" ? { rate: 0 } : { max: 0 }, new Date(begins)],
    ]);
  await world.table("freed").add({ policy_id, limiter_id: (await world.limiter("cap")).id });
  t.is((await world.admit({ now: new Date(begins + 1000) })).admitted, 0);
  t.deepEqual((await world.limiter("all")).wake_at, wake_at);
  t.is(await world.table("freed").count(), 1);
  t.is(id, (await world.partition("b")).blocked_on);
});

test("without fairness a shared throttle serves in the order of wait, also if a dear job comes first", async (t) => {
  const world = await engine(t, { gates: shared(1, 1, 1), halfLifeSeconds: null });
  const keys = ["holder", "dear", "b", "c", "d"];
  for (const key of keys) {
    await world.stage(key, { cost: key === "dear" ? 3 : 1 });
    await world.passes();
  }
  const went = await watch(world, Date.now(), 8, 100);
  t.deepEqual(
    went.map(([, partition]) => partition),
    keys.slice(1),
  );
});

test("more waiters than a pass claims go in fair order, whichever limiters they wait for", async (t) => {
  const region = concurrency(2, { name: "region", scope: (key) => key.slice(0, 2) });
  const world = await engine(t, { gates: [region] });
  const waiters = ["eu3", "us3", "eu4", "us4"];
  await world.stage(["eu1", "eu2", "us1", "us2"]);
  t.is(await world.passes(), 4);
  await world.stage(waiters);
  t.is(await world.passes(), 0);
  for (const [place, key] of waiters.entries())
    await world.table("partitions").set({ fair_key: place - 1e6 }, { key });
  const jobs = (await Promise.all(["eu1", "eu2", "us1", "us2"].map((key) => world.inFlight(key)))).flat();
  await world.release(jobs);
  const went: string[] = [];
  const from = Date.now() + 1000;
  for (let pass = 0; pass < 4; pass++) {
    const now = new Date(from + pass);
    await world.admit({ claim: 1, now });
    went.push(...(await world.admittedAt(now)));
  }
  t.deepEqual(went, waiters);
});

test("a tick in SQL, which routes and admits in one transaction, holds no limiter before it admits", async (t) => {
  const world = await engine(t, { gates: [concurrency(5), ...shared(1, 1, 1)] });
  await world.stage(["a", "b", "c"]);
  t.is(await world.passes(2), 1);
  const ticking = await world.session();
  await ticking.query("begin");
  const later = new Date(Date.now() + 10_000);
  await ticking.query("select dispatch_policy_internal._route('p', $1, 10000)", [later]);
  await t.notThrowsAsync(world.table("limiters").lock({}, "no key update nowait"));
  await ticking.query("commit");
  t.is(await world.number("select admitted from dispatch_policy.tick('p', now => $1)", [later]), 1);
});

test("an operator's admit, which routes first, holds no limiter before it admits", async (t) => {
  const world = await engine(t, { gates: [concurrency(5), ...shared(1, 1, 1)] });
  await world.stage(["a", "b", "c"]);
  t.is(await world.passes(2), 1);
  await world.stage("d");
  const admitting = await world.session();
  await admitting.query("begin");
  const later = new Date(Date.now() + 10_000);
  await admitting.query("select dispatch_policy.admit('p', 1, now => $1, dry_run => true)", [later]);
  await t.notThrowsAsync(world.table("limiters").lock({}, "no key update nowait"));
  await admitting.query("rollback");
});

test("who is made to wait for a shared bucket while a pass calls others is told in turn", async (t) => {
  const world = await engine(t, { gates: shared(1, 3600, 1) });
  await world.waitsLong();
  const start = Date.now() + 60_000;
  const at = (minutes: number) => new Date(start + minutes * 60_000);
  const route = (as: Queryable, minutes: number) =>
    as.query("select dispatch_policy_internal._route('p', $1, 10000)", [at(minutes)]);
  await world.stage("first");
  await world.route();
  t.is((await world.admit({ now: at(0) })).admitted, 1);
  await world.stage("second");
  await world.route();
  t.is((await world.admit({ now: at(1) })).admitted, 0);
  await world.stage("third");
  await world.route();
  const ticking = await world.session();
  await ticking.query("begin");
  t.is((await world.admit({ as: ticking, now: at(30), bounded: true })).admitted, 0);
  const calling = await world.session();
  const called = world.admit({ as: calling, now: at(61) });
  await world.waitsForLock(calling);
  await ticking.query("commit");
  t.is((await called).admitted, 1);

  const went = await world.admittedAt(at(61));
  for (const minutes of [62, 125, 190]) {
    await route(world.pool, minutes);
    await world.admit({ now: at(minutes) });
    went.push(...(await world.admittedAt(at(minutes))));
  }
  t.deepEqual(went, ["second", "third"]);
});

test("who is denied beside a job that moves to another partition waits for no slot that is free", async (t) => {
  const world = await engine(t, { gates: [concurrency(2, { name: "all", scope: "policy" })] });
  await world.stage("a", { jobKey: "k" });
  t.is(await world.passes(), 1);
  await world.stage("b", { jobKey: "k" });
  await world.stage("c");
  await world.passes(1);
  t.is((await world.partition("c")).blocked_on, null);
  await world.passes(1);
  t.deepEqual([(await world.inFlight("b")).length, (await world.inFlight("c")).length], [1, 1]);
});

test("a slot that is freed while its policy is off, and its waiter locked, is there when the policy is on", async (t) => {
  const world = await oneSlotTaken(t, ["first", "second"]);
  const holder = await world.session();
  await holder.query("begin");
  await world.table("partitions", holder).lock();
  await world.pool.query("select dispatch_policy.switch_policy('p', false)");
  await world.finish(await world.inFlight());
  await world.route();
  await holder.query("rollback");
  await world.pool.query("select dispatch_policy.switch_policy('p', true)");
  t.is(await world.passes(2), 1);
});
