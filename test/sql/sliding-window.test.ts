// A sliding window against the plain definition of one: what went in any time of its length.
import test, { type ExecutionContext } from "ava";
import { type Engine, type EngineOptions, engine, sliding, throttle } from "../helpers/engine.ts";
import { seedOf } from "../helpers/random.ts";
import { nameOf } from "../helpers/table.ts";

const ARRIVALS = Number(process.env.SLIDING_ARRIVALS ?? 50_000);

/** What went, and the most that went within `per` seconds, counted one by one. */
const WENT = `
  create temp table went (at timestamptz, cost float8);
  create function pg_temp.most(per float8) returns float8 language sql as $$
    select max(w.sum) from (
      select sum(g.cost) over (order by g.at range between make_interval(secs => per) - interval '1 us' preceding and current row)
      from went g) w
  $$;`;

/** Jobs come at random, in streams and after pauses; each goes at once where the window lets it, or is turned away. */
const RANDOM_ARRIVALS = `
  create function pg_temp.arrivals(n int, rate float8, per float8, costs float8[]) returns int language plpgsql
  set search_path = pg_catalog, dispatch_policy_internal, public, pg_temp as $$
  declare
    v_spent ${nameOf("spending")}[] := '{}';
    v_now timestamptz := '2030-01-01';
    v_cost float8;
    v_most int := 0;
  begin
    for i in 1..n loop
      v_now := v_now + make_interval(secs => per / rate * case floor(random() * rate * 20)
        when 0 then rate * random() * 2 when 1 then rate else random() end);
      v_cost := costs[1 + floor(random() * cardinality(costs))];
      if dispatch_policy_internal._window_spent(v_spent, per, v_now) + v_cost <= rate + 1e-9 then
        insert into went values (v_now, v_cost);
        v_spent := dispatch_policy_internal._window_spend(v_spent, per, per, v_cost, v_now);
        v_most := greatest(v_most, cardinality(v_spent));
      end if;
    end loop;
    return v_most;
  end $$;`;

for (const [rate, per, costs] of [
  [10, 60, [1]],
  [500, 1, [1]],
  [100, 3600, [0.5, 1, 7]],
] as const) {
  test(`random arrivals never exceed ${rate} in any ${per} s, at costs of ${costs.join(", ")}`, async (t) => {
    t.timeout(120_000 + ARRIVALS);
    const session = await (await engine(t, { gates: [] })).session();
    await session.query(WENT + RANDOM_ARRIVALS);
    await session.query("select setseed($1)", [seedOf(t) / 2 ** 31]);
    const { rows } = await session.query("select pg_temp.arrivals($1, $2, $3, $4) as entries", [
      ...[Math.ceil(ARRIVALS / 3), rate, per, costs],
    ]);
    t.true(rows[0].entries <= 65, `${rows[0].entries} entries`);
    const { most, went } = (
      await session.query("select pg_temp.most($1), count(*)::int as went from went", [per])
    ).rows[0];
    t.log(`${went} went, ${most} at most in a window, ${rows[0].entries} entries at most`);
    t.true(most <= rate + 1e-6);
    t.true(most > rate * 0.9);
  });
}

/** Passes at these times over one partition that always has a job; returns when each job went, in ms. */
async function passes(world: Engine, from: number, times: readonly number[]): Promise<number[]> {
  const went: number[] = [];
  for (const ms of times) {
    const now = new Date(from + ms);
    const { admitted } = await world.admit({ now });
    for (let job = 0; job < admitted; job++) went.push(ms);
  }
  return went;
}

async function staged(t: ExecutionContext, jobs: number, options: EngineOptions) {
  const world = await engine(t, { batchSize: 1000, ...options });
  await world.stage(Array(jobs).fill("a"));
  await world.route();
  return { world, from: Date.now() + 60_000 };
}

const steps = (last: number, by: number) => Array.from({ length: last / by + 1 }, (_, step) => step * by);

test("while jobs wait, every window is at least 95% full, and none overfull", async (t) => {
  for (const [rate, everyMs] of [
    [40, 5],
    [200, 10],
    [7, 10],
  ] as const) {
    const { world, from } = await staged(t, rate * 4, { gates: [sliding(rate)] });
    // the first ones come in a stream, not at once
    const trickle = steps(900, 30);
    const went: number[] = [];
    for (const ms of trickle) {
      await world.table("policies").set({ admission_budget: Math.ceil(rate / trickle.length) });
      went.push(...(await passes(world, from, [ms])));
    }
    await world.table("policies").set({ admission_budget: null });
    went.push(
      ...(await passes(
        world,
        from,
        steps(2000, everyMs).map((ms) => 905 + ms),
      )),
    );
    const windows = steps(1700, 5).map(
      (start) => went.filter((at) => at >= start && at < start + 1000).length,
    );
    t.true(Math.max(...windows) <= rate, `${rate}: ${Math.max(...windows)} at most`);
    const full = windows.slice(1000 / 5 - 20);
    t.true(Math.min(...full) >= Math.floor(rate * 0.95), `${rate}: ${Math.min(...full)} at least`);
  }
});

test("what was spent comes back a window later, to the instant", async (t) => {
  const { world, from } = await staged(t, 20, { gates: [sliding(3, { per: 60 })] });
  t.is((await world.admit({ now: new Date(from) })).admitted, 3);
  t.deepEqual((await world.partition("a")).denied_until, new Date(from + 60_000));
  t.is((await world.admit({ now: new Date(from + 59_999) })).admitted, 0);
  t.is((await world.admit({ now: new Date(from + 60_000) })).admitted, 3);
});

test("a bucket lets twice its rate through in one window, a sliding window never", async (t) => {
  for (const [gate, expected] of [
    [throttle(10, { per: 10 }), 19],
    [sliding(10, { per: 10 }), 10],
  ] as const) {
    const { world, from } = await staged(t, 40, { gates: [gate] });
    const went = await passes(world, from, steps(9500, 500));
    t.is(went.length, expected, gate.sliding ? "sliding" : "bucket");
  }
});

test("a rate below one is one job in a longer window", async (t) => {
  const { world, from } = await staged(t, 5, { gates: [sliding(0.5)] });
  t.deepEqual(await passes(world, from, [0, 1000, 1999, 2000, 3999, 4000]), [0, 2000, 4000]);
});

test("a job dearer than the window goes alone, when the window is empty", async (t) => {
  const world = await engine(t, { gates: [sliding(5)] });
  await world.stage(["a", "a"], { cost: 7 });
  await world.route();
  const from = Date.now() + 60_000;
  t.deepEqual(await passes(world, from, [0, 500, 999, 1000]), [0, 1000]);
});

test("a bucket that becomes a window counts what it lacks as spent, and back", async (t) => {
  const world = await engine(t, { gates: [throttle(10, { per: 60 })] });
  const from = Date.now() + 60_000;
  const at = async (seconds: number, gate = sliding(10, { per: 60 })) => {
    await world.stage("a", { gates: [gate] });
    const now = new Date(from + seconds * 1000);
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [now]);
    return (await world.admit({ now })).admitted;
  };
  await world.stage(Array(20).fill("a"));
  await world.route();
  t.is((await world.admit({ now: new Date(from) })).admitted, 10);
  t.is(await at(1), 0);
  t.is(await at(60.9), 0);
  t.is(await at(61), 10);
  t.is(await at(61, throttle(10, { per: 60 })), 0);
  t.is(await at(67, throttle(10, { per: 60 })), 1);
});

test("draws from a sliding window, and temporary limits on one", async (t) => {
  const { world } = await staged(t, 1, { gates: [sliding(3, { per: 60, scope: "policy" })] });
  const now = new Date();
  const take = async (cost: number, seconds = 0) => {
    const { rows } = await world.pool.query(
      "select * from dispatch_policy.take('p', 'throttle', cost => $1, now => $2)",
      [cost, new Date(Number(now) + seconds * 1000)],
    );
    return rows[0];
  };
  t.true((await take(2)).taken);
  t.deepEqual(await take(2, 10), { taken: false, retry_at: new Date(Number(now) + 60_000) });
  t.true((await take(1, 10)).taken);
  t.true((await take(2, 60)).taken);
  await t.throwsAsync(world.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"burst": 9}')`), {
    message: /throttle has no value 'burst'; it has per, rate/,
  });
  await world.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"rate": 30}')`);
  t.true((await take(20, 60)).taken);
});

/** Adds jobs under a definition of so many seconds, and admits what goes then. */
function deployments(world: Engine, rate: number) {
  const from = Date.now() + 60_000;
  return async (seconds: number, per: number, jobs: number) => {
    await world.stage(Array(jobs).fill("a"), { gates: [sliding(rate, { per })] });
    const now = new Date(from + seconds * 1000);
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [now]);
    const { admitted } = await world.admit({ now });
    // what is left waits for nobody here
    await world.table("staged_jobs").remove();
    await world.table("partitions").set({ denied_until: "-infinity", blocked_on: null });
    return admitted;
  };
}

test("a deployment that shortens a window, and one that takes it back, forget nothing that was spent", async (t) => {
  const world = await engine(t, { gates: [sliding(10, { per: 60 })] });
  const at = deployments(world, 10);
  t.is(await at(0, 60, 10), 10);
  t.is(await at(20, 10, 3), 3, "the shorter window is empty");
  t.is(await at(35, 10, 3), 3);
  t.is(await at(40, 60, 10), 0, "16 in a minute");
  t.is(await at(61, 60, 10), 4, "6 in a minute");
  t.is(await at(62, 10, 10), 6);
  t.is(await at(80.5, 60, 10), 0);
});

test("a window that was shortened counts no longer than its own length, however long the one before was", async (t) => {
  const world = await engine(t, { gates: [sliding(10, { per: 86_400 })] });
  const at = deployments(world, 10);
  t.is(await at(0, 86_400, 10), 10);
  for (const second of [1, 2.2, 3.4]) {
    for (let job = 0; job < 10; job++) t.is(await at(second + job / 100, 1, 1), 1, `job ${job}`);
    t.is(await at(second + 0.5, 1, 1), 0);
  }
  const { length: entries } = (await world.limiter("throttle")).spent;
  t.true(entries <= 11, `${entries} entries`);
  t.is(await at(20, 86_400, 1), 0, "a day's are known still");
});

test("what a longer window spent is forgotten a day and its length after it was shortened", async (t) => {
  const world = await engine(t, { gates: [sliding(10, { per: 60 })] });
  const at = deployments(world, 10);
  t.is(await at(0, 60, 10), 10);
  t.is(await at(20, 1, 3), 3);
  t.is(await at(90_000, 1, 1), 1);
  t.is(await at(90_002, 1, 1), 1);
  t.is((await world.limiter("throttle")).spent.length, 1);
});

test("a window longer than time itself fails no pass", async (t) => {
  const world = await engine(t, { gates: [sliding(10, { per: 1e12 })] });
  await world.stage(["a", "b"]);
  t.is(await world.passes(2), 2);
  await world.stage(Array(10).fill("a"));
  t.is(await world.passes(2), 9);
});
