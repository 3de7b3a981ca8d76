// The database clock rules, and may step.
import test, { type ExecutionContext } from "ava";
import { makeEngine } from "../../../src/db/engine.ts";
import { noEvents } from "../../../src/events.ts";
import { sweepOnce } from "../../../src/operate/sweep.ts";
import {
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  sliding,
  throttle,
  until,
} from "../../helpers/engine.ts";
import { fetchJob, startJob } from "../../helpers/native.ts";
import { silent } from "../../helpers/silent.ts";
import { nameOf, workerTable } from "../../helpers/table.ts";

const SECOND = 1000;

test("a partition marked a day ahead breaks no tick, and its mark moves back", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["a", "b"]);
  await world.route();
  await world
    .table("partitions")
    .set({ decayed_admits: 1, decayed_at: () => "now() + interval '1 day'" }, { key: "a" });

  t.is((await world.admit()).admitted, 2);
  t.true((await world.partition("a")).decayed_at <= new Date(Date.now() + SECOND));
});

test("decayed admits marked years ago or ahead stay finite", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)], halfLifeSeconds: 0.001 });
  await world.stage(["past", "future"]);
  await world.route();
  for (const [key, years] of Object.entries({ past: -300, future: 300 }))
    await world
      .table("partitions")
      .set({ decayed_admits: 1e200, decayed_at: () => `now() + interval '${years} years'` }, { key });

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
  await world.table("limiters").set({ tokens: 0, refilled_at: new Date(now + aheadMs) }, { gate: "all" });
  return world;
}

async function admitAt(world: Engine, now: number): Promise<number> {
  await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [new Date(now)]);
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
  // on a busy machine a moment may be over before this test lets go
  await world.pool.query(
    "alter function dispatch_policy_internal._lock_limiters_soon set lock_timeout = '10s'",
  );
  const other = await world.session();
  const ticking = await world.session();
  await other.query("begin");
  const limiters = world.table("limiters", other);
  await limiters.lock({ gate: "all" });
  const tick = world.admit({ as: ticking });
  await world.waitsForLock(ticking);
  // later than the tick began, whoever held the lock spent a token
  await limiters.set({ tokens: 1, refilled_at: () => "clock_timestamp()" }, { gate: "all" });
  const { refilled_at: at } = await limiters.one({ gate: "all" });
  await other.query("commit");

  t.is((await tick).admitted, 1);
  const { rows: jobs } = await world.pool.query("select admitted_at from dispatch_policy.in_flight_jobs");
  t.true(jobs[0].admitted_at >= at);
  t.true((await world.limiter("all")).refilled_at >= at);
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
  const free = `array(select id from ${nameOf("partitions")} order by id for update skip locked)`;
  await world
    .table("partitions")
    .set(
      { due_at: "-infinity", denied_until: "-infinity", blocked_on: null },
      { id: (its) => `${its} = any(${free})` },
    );
}

test("what a process declares is in force, though one whose clock is an hour ahead declared before it", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const { rows } = await world.pool.query("select definition from dispatch_policy.policies");
  const declare = async (retries: string, startedAt: number) => {
    const { rows: answers } = await world.pool.query(
      "select in_force from dispatch_policy_internal._declare_policy($1, $2, '{}', $3)",
      [JSON.stringify({ ...rows[0].definition, retries }), retries, new Date(startedAt)],
    );
    return answers[0].in_force;
  };
  t.true(await declare("restage", Date.now() + 3600 * SECOND));
  t.true(await declare("bypass", Date.now() + SECOND));
  t.false(await declare("restage", Date.now() - 3600 * SECOND), "one that started earlier is not");
});

test("a pass an hour ahead stops no backlog: the next ones go by the database's clock again", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["a", "a", "a", "b", "b"]);
  await world.route();
  t.is((await world.admit({ now: new Date(Date.now() + 3600 * SECOND) })).admitted, 2);
  await world.finish(await world.inFlight());
  t.is(await world.passes(3), 2);
});

/** As after a failover to a server whose clock is an hour behind: whatever time is stored is an hour ahead. */
const clockGoesBack = (world: Engine) => storedTimesMove(world, "1 hour");

/** As after a clock was corrected: whatever time is stored is an hour ago. */
async function clockGoesAhead(world: Engine): Promise<void> {
  await storedTimesMove(world, "-1 hour");
  await workerTable(world.pool).set({ locked_at: (its) => `${its} - interval '1 hour'` });
}

async function storedTimesMove(world: Engine, by: "1 hour" | "-1 hour"): Promise<void> {
  await world.pool.query(`do $$
    declare
      v record;
    begin
      for v in
        select c.table_name, string_agg(format('%1$I = %1$I + interval ''${by}''', c.column_name), ', ') as sets
        from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
        where c.table_schema = 'dispatch_policy_internal' and c.data_type = 'timestamp with time zone'
          and c.is_generated = 'NEVER' and t.table_type = 'BASE TABLE'
        group by c.table_name
      loop
        execute format('update dispatch_policy_internal.%I set %s', v.table_name, v.sets);
      end loop;
    end
    $$`);
  const spending = `row(s.at + interval '${by}', s.cost)::${nameOf("spending")}`;
  await world.table("limiters").set({ spent: (its) => `array(select ${spending} from unnest(${its}) s)` });
}

async function sweep(world: Engine): Promise<void> {
  await world.pool.query("select dispatch_policy_internal._sweep_clock(clock_timestamp())");
  await world.pool.query("select dispatch_policy_internal._sweep_partitions(clock_timestamp())");
}

/** A leader's sweep, with all its steps. */
async function sweepWhole(t: ExecutionContext, world: Engine): Promise<void> {
  const { failed } = await sweepOnce({
    ...{ withPgClient: (callback) => callback(world.pool as never), events: noEvents, logger: silent },
    ...{
      engine: makeEngine("dispatch_policy"),
      ages: { partitionInactiveAfterMs: 1e9, keepAuditForMs: 1e9, metricsRetentionMs: 6e8 },
    },
  });
  t.deepEqual(failed, []);
}

/** Two passes over these jobs; then the clock goes back, and a sweep comes. */
async function setBack(
  t: ExecutionContext,
  jobs: readonly string[],
  options: EngineOptions,
): Promise<Engine> {
  const world = await engine(t, options);
  await world.stage(jobs);
  await world.passes(2);
  await clockGoesBack(world);
  await sweep(world);
  return world;
}

/** Routes and admits as if it were so many seconds later. */
async function passIn(world: Engine, seconds: number): Promise<number> {
  return admitAt(world, Date.now() + seconds * SECOND);
}

test("what waits for a cap goes on after a clock that went back", async (t) => {
  for (const gate of [concurrency(2), concurrency(2, { scope: "policy" })]) {
    const world = await setBack(t, ["a", "a", "a", "a"], { gates: [gate] });
    await world.finish(await world.inFlight());
    t.is(await world.passes(3), 2);
  }
});

test("what nothing denies goes on after a clock that went back", async (t) => {
  const world = await engine(t, { gates: [], batchSize: 1 });
  await world.stage(["a", "a", "a", "b"]);
  await world.passes();
  await clockGoesBack(world);
  t.is(await world.passes(), 0);
  await sweep(world);
  t.is(await world.passes(3), 2);
});

for (const [what, gate] of Object.entries({
  "a bucket of its own": throttle(10, { per: 600 }),
  "a bucket of all": throttle(10, { per: 600, scope: "policy" }),
  "a window of its own": sliding(10, { per: 600 }),
  "a window of all": sliding(10, { per: 600, scope: "policy" }),
})) {
  test(`after a clock that went back ${what} gives no token twice, and goes on`, async (t) => {
    const world = await setBack(t, Array(50).fill("a"), { gates: [gate] });
    t.is((await world.inFlight()).length, 10);
    t.is(await passIn(world, 0), 0);
    t.is(await passIn(world, 1), 0);
    const later = await passIn(world, 605);
    t.true(later >= 9 && later <= 10, `${later} in ten minutes`);
  });
}

for (const scope of ["partition", "policy"] as const) {
  test(`a rate of zero by ${scope} is looked at again after a clock that went back`, async (t) => {
    const world = await setBack(t, ["a", "a"], { gates: [throttle(0, { per: 60, scope })] });
    await world.table("limiters").set({ "numbers.rate": 10, tokens: 10 }, { by_tokens: true });
    await sweep(world);
    t.is(await passIn(world, 0), 2);
  });
}

test("who waited when the clock went back is not behind all who come later", async (t) => {
  const world = await setBack(t, ["a", "b", "c"], { gates: [concurrency(1, { scope: "policy" })] });
  await world.stage(["x", "y", "z"]);
  t.is(await world.passes(), 0);
  const order: string[] = [];
  for (let job = 0; job < 6; job++) {
    const { rows } = await world.pool.query("select job_id, partition from dispatch_policy.in_flight_jobs");
    order.push(rows[0].partition);
    await world.finish([rows[0].job_id]);
    await world.passes(2);
    await sweep(world);
  }
  t.deepEqual(order.slice(0, 3).sort(), ["a", "b", "c"]);
});

test("a slot kept for a partition when the clock went back is not kept for an hour", async (t) => {
  const partOf = (part: 0 | 1) => (partition: string) => partition.split("/")[part] as string;
  const gates = [
    concurrency(1, { name: "account", scope: partOf(0) }),
    concurrency(1, { name: "host", scope: partOf(1) }),
  ];
  const world = await engine(t, { gates });
  const at = aMinuteFromNow(); // one time for all passes: a slot is kept for a second
  for (const partition of ["other/busy host", "acme/busy host", "acme/idle host"]) {
    await world.stage(partition);
    await admitAt(world, at);
  }
  t.is((await world.inFlight()).length, 1, "the account's slot is kept");
  await clockGoesBack(world);
  await sweep(world);
  t.is(await passIn(world, 0), 1);
});

const breaker = { failures: 2, withinSeconds: 10, cooldownSeconds: 10 };

async function oneFails(world: Engine): Promise<void> {
  const [job] = await world.inFlight("a");
  await world.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  await world.release([{ job: job!, ok: false }]);
  await world.route();
}

test("a breaker that opened when the clock was ahead stays open for no hour", async (t) => {
  const world = await engine(t, { gates: [concurrency(2)], breaker });
  await world.stage(["a", "a", "a"]);
  await world.passes();
  await oneFails(world);
  await oneFails(world);
  await clockGoesBack(world);
  await sweep(world);
  t.is(await passIn(world, 0), 1, "the probe");
});

test("failures of when the clock was ahead do not open a breaker an hour later", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)], breaker });
  await world.stage(["a", "a", "a"]);
  await world.passes();
  await oneFails(world);
  await clockGoesBack(world);
  await sweep(world);
  t.is(await world.passes(2), 1);
  await oneFails(world);
  t.is((await world.partition("a")).breaker_reason, null);
});

test("an override that a pass an hour ahead has come to is announced again, once a whole sweep has been", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.pool.query(
    `select dispatch_policy.set_limit('p', 'concurrency', '{"max": 3}', "from" => now() + interval '1 minute')`,
  );
  await world.stage(["a", "a", "a", "a"]);
  t.is(await passIn(world, 3600), 3, "by a clock that is ahead");
  await world.finish(await world.inFlight());
  await world.stage(["a", "a", "a"]);
  t.is(await world.passes(2), 1);
  await sweepWhole(t, world);
  t.is(await passIn(world, 61), 2);
});

test("a job quarantined when the clock was ahead is tried again", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage("a");
  const inFour = () => "clock_timestamp() + interval '4 seconds'";
  await world.table("staged_jobs").set({ due: false, failures: 3, retry_at: inFour, error: "refused" });
  await world.passes();
  await clockGoesBack(world);
  t.is(await passIn(world, 5), 0);
  await sweep(world);
  t.is(await world.passes(2), 1);
});

test("leases and pools of a clock that was ahead keep nobody from leading, and no dead pool alive", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const leads = async (holder: string) => {
    const text =
      "select leads, expires_in_ms from dispatch_policy_internal._lease($1, '{p}', null, '4 seconds', true)";
    return (await world.pool.query(text, [holder])).rows[0];
  };
  const alive = (pool: string) =>
    world.pool.query(
      "select dispatch_policy_internal._worker_alive($1, 1, '{p}', 'host', 1, '1 second', '0')",
      [pool],
    );
  t.true((await leads("dead")).leads);
  await alive("dead");
  await alive("judge");
  await clockGoesBack(world);
  t.true((await leads("judge")).leads);
  const { leads: again, expires_in_ms: ms } = await leads("dead");
  t.true(!again && ms > 0 && ms <= 4000, "the new lease holds");
  await until("the dead pool is found", async () => {
    await alive("judge");
    return (await world.number("select pools from dispatch_policy_internal._sweep_workers('judge')")) > 0;
  });
  const { rows } = await world.pool.query("select pool_id from dispatch_policy.workers");
  t.deepEqual(rows, [{ pool_id: "judge" }]);
});

for (const [what, gate] of Object.entries({
  "a bucket of its own": throttle(10, { per: 600 }),
  "a bucket of all": throttle(10, { per: 600, scope: "policy" }),
  "a window of its own": sliding(10, { per: 600 }),
  "a window of all": sliding(10, { per: 600, scope: "policy" }),
})) {
  test(`after a clock that went ahead ${what} is full once, and goes on`, async (t) => {
    const world = await engine(t, { gates: [gate] });
    await world.stage(Array(50).fill("a"));
    t.is(await world.passes(2), 10);
    await clockGoesAhead(world);
    t.is(await passIn(world, 0), 10);
    await sweep(world);
    t.is(await passIn(world, 1), 0);
    const later = await passIn(world, 605);
    t.true(later >= 9 && later <= 10, `${later} in ten minutes`);
  });
}

test("a clock that goes ahead makes no room under a cap, and what waits for it goes on", async (t) => {
  for (const gate of [concurrency(2), concurrency(2, { scope: "policy" })]) {
    const world = await engine(t, { gates: [gate] });
    await world.stage(["a", "a", "a", "a"]);
    t.is(await world.passes(2), 2);
    await clockGoesAhead(world);
    t.is(await world.passes(2), 0);
    await sweep(world);
    t.is(await world.passes(2), 0);
    await world.finish(await world.inFlight());
    t.is(await world.passes(3), 2);
  }
});

test("a breaker that is open when the clock goes ahead lets its probe go, and older failures do not count", async (t) => {
  const world = await engine(t, { gates: [concurrency(2)], breaker });
  await world.stage(Array(6).fill("a"));
  await world.passes();
  await oneFails(world);
  await oneFails(world);
  t.is(await world.passes(2), 0);
  await clockGoesAhead(world);
  t.is(await world.passes(2), 1, "the probe");
  await world.finish(await world.inFlight());
  t.is(await world.passes(2), 2);
  await oneFails(world);
  await clockGoesAhead(world);
  await oneFails(world);
  t.true((await world.partition("a")).breaker_until < new Date());
});

/** Heartbeats of worker pools, and what the one named "leader" finds. */
function poolsOf(world: Engine, staleAfter: string) {
  const text = "select dispatch_policy_internal._worker_alive($1, 5, '{p}', 'host', 1, $2, '0')";
  const lease = "select leads from dispatch_policy_internal._lease($1, '{p}', null, '4 seconds', true)";
  return {
    beats: (pool: string) => world.pool.query(text, [pool, staleAfter]),
    leads: async (pool: string) => (await world.pool.query(lease, [pool])).rows[0].leads as boolean,
    dead: () => world.number("select pools from dispatch_policy_internal._sweep_workers('leader')"),
    overdue: () => world.number("select count(*)::int from dispatch_policy_internal._sweep_overdue()"),
  };
}

test("a clock that goes ahead kills no living pool, and its leader leads on", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const { beats, dead, leads } = poolsOf(world, "3 seconds");
  for (const pool of ["leader", "other", "killed"]) await beats(pool);
  t.true(await leads("leader"));
  await clockGoesAhead(world);
  t.is(await dead(), 0, "before the leader's next heartbeat");
  await beats("leader");
  t.is(await dead(), 0, "nor after it");
  t.deepEqual([await leads("leader"), await leads("other")], [true, false]);
  await until("the killed one is found", async () => {
    for (const pool of ["leader", "other"]) await beats(pool);
    return (await dead()) > 0;
  });
  const { rows } = await world.pool.query("select pool_id from dispatch_policy.workers order by 1");
  t.deepEqual(rows, [{ pool_id: "leader" }, { pool_id: "other" }]);
});

test("a clock that goes ahead makes no running job overdue, and one that hangs is found later", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)], slotTimeout: 600 });
  const { beats, overdue } = poolsOf(world, "1 minute");
  await beats("leader");
  await world.stage("a");
  await world.passes();
  const [id] = await world.inFlight();
  await startJob(world, await fetchJob(world, id!, "leader"), { poolId: "leader" });
  await clockGoesAhead(world);
  t.is(await overdue(), 0, "before the pool's next heartbeat");
  await beats("leader");
  t.is(await overdue(), 0, "nor after it");
  // ten minutes of heartbeats later
  await world.table("workers").set({ unbroken_since: (its) => `${its} - interval '601 seconds'` });
  t.is(await overdue(), 1);
  // it is silent: perhaps dead, and then its jobs run again
  await world.table("workers").set({ heartbeat_at: () => "now() - interval '31 seconds'" });
  t.is(await overdue(), 0);
});
