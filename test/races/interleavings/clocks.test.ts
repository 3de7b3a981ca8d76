// The database clock rules, and may step.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, throttle, until } from "../../helpers/engine.ts";

const SECOND = 1000;

test("a partition marked a day ahead breaks no tick, and its mark moves back", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["a", "b"]);
  await world.route();
  await world.pool.query(`update dispatch_policy._private_partitions
    set decayed_admits = 1, decayed_at = now() + interval '1 day' where key = 'a'`);

  t.is((await world.admit()).admitted, 2);
  t.true((await world.partition("a")).decayed_at <= new Date(Date.now() + SECOND));
});

test("decayed admits marked years ago or ahead stay finite", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)], halfLifeSeconds: 0.001 });
  await world.stage(["past", "future"]);
  await world.route();
  await world.pool.query(`update dispatch_policy._private_partitions set decayed_admits = 1e200,
    decayed_at = now() + case key when 'past' then -1 else 1 end * interval '300 years'`);

  t.is((await world.admit()).admitted, 2);
  t.is((await world.partition("past")).decayed_admits, 1);
  t.true(Number.isFinite((await world.partition("future")).fair_key));
});

/** Later than anything this test stages. */
const aMinuteFromNow = () => Date.now() + 60 * SECOND;

/** A throttle of 10 per second, empty, marked `aheadMs` from `now`. */
async function emptyBucket(t: ExecutionContext, now: number, aheadMs: number): Promise<Engine> {
  const world = await engine(t, { gates: [throttle(10, { name: "all", scope: "policy" })] });
  await world.stage(Array(50).fill("a"));
  await world.route();
  await world.pool.query(
    "update dispatch_policy._private_limiters set tokens = 0, refilled_at = $1 where gate = 'all'",
    [new Date(now + aheadMs)],
  );
  return world;
}

async function admitAt(world: Engine, now: number): Promise<number> {
  await world.pool.query("select dispatch_policy._route('p', $1, 10000, false)", [new Date(now)]);
  return (await world.admit({ now: new Date(now) })).admitted;
}

test("a bucket marked less than a second ahead mints no token twice", async (t) => {
  const now = aMinuteFromNow();
  const world = await emptyBucket(t, now, 900);
  t.is(await admitAt(world, now), 0);
  t.is(+(await world.limiter("all")).refilled_at, now + 900, "the mark stays");
  t.is(await admitAt(world, now + 800), 0);
  t.is(await admitAt(world, now + 1900), 10, "a second after the mark");
});

test("a bucket marked years ahead does not stay frozen", async (t) => {
  const now = aMinuteFromNow();
  const world = await emptyBucket(t, now, 5 * 365 * 86_400 * SECOND);
  t.is(await admitAt(world, now), 0, "no tokens for a wrong clock's mark");
  t.is(+(await world.limiter("all")).refilled_at, now, "the mark moves back");
  t.is(await admitAt(world, now + SECOND), 10);
});

test("a clock that goes backwards is no time passed", async (t) => {
  const now = aMinuteFromNow();
  const world = await emptyBucket(t, now, 0);
  t.is(await admitAt(world, now + SECOND), 10);
  for (const back of [100, 500, 900]) t.is(await admitAt(world, now + SECOND - back), 0);
  t.is(await admitAt(world, now + SECOND + 500), 5);
});

test("the time is read after the locks, by a tick that waited for one", async (t) => {
  const world = await engine(t, {
    gates: [throttle(1, { per: 3600, burst: 1, name: "all", scope: "policy" })],
  });
  await world.stage(Array(50).fill("a"));
  await world.route();
  const other = await world.session();
  const ticking = await world.session();
  await other.query("begin");
  await other.query("select from dispatch_policy._private_limiters where gate = 'all' for update");
  const tick = world.admit({ as: ticking });
  await world.waitsForLock(ticking);
  // later than the tick began, whoever held the lock spent a token
  const { rows } = await other.query(`update dispatch_policy._private_limiters
    set tokens = 1, refilled_at = clock_timestamp() where gate = 'all' returning refilled_at as at`);
  await other.query("commit");

  t.is((await tick).admitted, 1);
  const { rows: jobs } = await world.pool.query("select admitted_at from dispatch_policy.in_flight_jobs");
  t.true(jobs[0].admitted_at >= rows[0].at);
  t.true((await world.limiter("all")).refilled_at >= rows[0].at);
});

test("tickers whose time is old, beside others, let no throttle overrun", async (t) => {
  const world = await engine(t, { gates: [throttle(40, { burst: 1, name: "all", scope: "policy" })] });
  const keys = Array.from({ length: 10 }, (_, i) => `k${i}`);
  await world.stage(keys.flatMap((key) => Array(50).fill(key)));
  await world.route();
  const started = Date.now();
  let stop = false;
  // up to a second: a mark further ahead of a tick's time is taken for a wrong clock's, and moves back
  const tickers = [0, 300, 600, 900].map(async (ageMs) => {
    while (!stop) {
      await looksAgain(world);
      await world.admit({ claim: 5, now: ageMs === 0 ? null : new Date(Date.now() - ageMs) });
    }
  });
  await until("some jobs are admitted", async () => (await world.inFlight()).length >= 60);
  stop = true;
  await Promise.all(tickers);
  const seconds = (Date.now() - started) / SECOND;
  const admitted = (await world.inFlight()).length;
  const allowed = 1 + 40 * seconds;
  t.true(admitted <= allowed + 1, `${admitted} admitted in ${seconds} s, ${allowed} allowed`);
});

/** Makes every partition eligible that no tick holds, so that ticks ask the throttle as often as they can. */
async function looksAgain(world: Engine): Promise<void> {
  await world.pool.query(`update dispatch_policy._private_partitions
    set due_at = '-infinity', denied_until = '-infinity', blocked_on = null
    where id = any(array(select id from dispatch_policy._private_partitions order by id for update skip locked))`);
}
