// Producers of a bounded backlog, beside each other and beside a tick.
import test from "ava";
import { concurrency, Engine, engine } from "../../helpers/engine.ts";
import { nameOf } from "../../helpers/table.ts";

const FULL = { code: "DPFUL" };

for (const bound of [{ partition: 1 }, { policy: 1 }]) {
  const of = Object.keys(bound)[0];

  test(`what another producer has not committed is not counted, and so they overshoot: ${of}`, async (t) => {
    const world = await engine(t, { gates: [], maxPending: bound });
    const other = await world.session();
    await other.query("begin");
    await world.stage("a", { as: other });
    await world.stage("a");
    await other.query("commit");
    t.is(await world.staged(), 2);
    await t.throwsAsync(world.stage("a"), FULL);
  });

  test(`strict producers wait for each other, and never overshoot: ${of}`, async (t) => {
    const world = await engine(t, { gates: [], maxPending: { ...bound, strict: true } });
    const [first, second] = [await world.session(), await world.session()];
    await first.query("begin");
    await world.stage("a", { as: first });
    const late = t.throwsAsync(world.stage("a", { as: second }), FULL);
    await world.waitsForLock(second);
    await first.query("commit");
    await late;
    t.is(await world.staged(), 1);
  });

  test(`a strict producer whose rival rolls back goes on: ${of}`, async (t) => {
    const world = await engine(t, { gates: [], maxPending: { ...bound, strict: true } });
    const [first, second] = [await world.session(), await world.session()];
    await first.query("begin");
    await world.stage("a", { as: first });
    const late = world.stage("a", { as: second });
    await world.waitsForLock(second);
    await first.query("rollback");
    await late;
    t.is(await world.staged(), 1);
  });
}

test("a job without a key counts in mode unsafe_dedupe as in any other", async (t) => {
  const world = await engine(t, { gates: [], maxPending: { policy: 3 } });
  const stage = () =>
    world.pool.query("select id from dispatch_policy_internal._stage($1, 'unsafe_dedupe')", [
      JSON.stringify([world.batch(["a"])]),
    ]);
  for (let n = 0; n < 3; n++) await stage();
  await t.throwsAsync(stage(), FULL);
  t.is(await world.staged(), 3);
});

test("strict producers of the same partitions in another order do not deadlock", async (t) => {
  const world = await engine(t, { gates: [], maxPending: { partition: 1000, policy: 10_000, strict: true } });
  const keys = ["a", "b", "c", "d", "e"];
  const produce = async (order: readonly string[]) => {
    for (let round = 0; round < 20; round++) await world.stage(order);
  };
  await Promise.all([produce(keys), produce(keys.toReversed()), produce(["c", "a", "e", "b", "d"])]);
  t.is(await world.staged(), 300);
});

test("dropping the oldest passes by what a tick is at, and neither waits for the other", async (t) => {
  const world = await engine(t, {
    gates: [concurrency(1)],
    maxPending: { partition: 2, whenFull: "drop_oldest" },
  });
  const [first, second] = await world.stage(["a", "a"]);
  await world.route();
  const ticking = await world.session();
  await ticking.query("begin");
  t.is((await world.admit({ as: ticking })).admitted, 1);
  await world.stage("a");
  t.is(await world.table("staged_jobs").count({ id: second }), 1);
  await ticking.query("commit");
  t.is(await world.table("in_flight_jobs").count({ staged_id: first }), 1);
});

test("jobs added one by one while others run never go past the bound, nor does its count drift", async (t) => {
  const world = await engine(t, {
    gates: [concurrency(2)],
    maxPending: { policy: 20, whenFull: "drop_newest", strict: true },
  });
  let adding = true;
  const producers = [1, 2, 3].map(async () => {
    for (let n = 0; n < 60; n++) await world.stage(`k${n % 7}`);
  });
  const work = (async () => {
    while (adding) await world.passes(1).then(async () => world.finish(await world.inFlight()));
  })();
  const watch = (async () => {
    let most = 0;
    while (adding) most = Math.max(most, await world.staged());
    return most;
  })();
  await Promise.all(producers);
  adding = false;
  await work;
  t.true((await watch) <= 20);
  t.is(await world.number("select dispatch_policy_internal._sweep_pending()"), 0);
});

for (const bound of [{ partition: 5 }, { policy: 5 }]) {
  test(`a backlog from before its bound goes a thousand jobs a call: ${Object.keys(bound)[0]}`, async (t) => {
    const world = await engine(t, { gates: [] });
    await world.stage(Array(1500).fill("a"));
    const bounded = new Engine(world.url, world.pool, {
      ...{ gates: [], maxPending: { ...bound, whenFull: "drop_oldest" } },
    });
    await bounded.declare();
    for (const left of [500, 5, 5]) {
      await world.stage("a");
      t.is(await world.staged(), left);
    }
  });
}

test("jobs whose partition is still to be worked out are not held to a partition's bound", async (t) => {
  const world = await engine(t, { gates: [], maxPending: { partition: 1, whenFull: "drop_oldest" } });
  const batch = { policy: "p", version: 0, partitions: [], jobs: [0, 1, 2].map((n) => ({ n, task: "p" })) };
  await world.pool.query("select from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([batch]),
  ]);
  t.is(await world.staged(), 3);
});

for (const bound of [{ partition: 3 }, { policy: 3 }]) {
  const of = Object.keys(bound)[0];
  const idsIn = async (world: Engine): Promise<string[]> => {
    const { rows } = await world.pool.query("select id from dispatch_policy.staged_jobs order by id");
    return rows.map(({ id }) => id);
  };

  for (const commits of [true, false]) {
    const outcome = commits ? "commits" : "rolls back";

    test(`two producers at once that drop the oldest drop no job twice, and none too many; one ${outcome}: ${of}`, async (t) => {
      const world = await engine(t, { gates: [], maxPending: { ...bound, whenFull: "drop_oldest" } });
      const [first, second, third] = await world.stage(["a", "a", "a"]);
      const rival = await world.session();
      await rival.query("begin");
      const [rivals] = await world.stage("a", { as: rival });
      const [mine] = await world.stage("a");
      await rival.query(commits ? "commit" : "rollback");
      t.deepEqual(await idsIn(world), [
        ...(commits ? [] : [first]),
        second,
        third,
        ...(commits ? [rivals] : []),
        mine,
      ]);
      const [last] = await world.stage("a");
      t.deepEqual(await idsIn(world), [commits ? rivals : third, mine, last], "one more than it brought");
      t.is(await world.number("select dispatch_policy_internal._sweep_pending()"), 0, "the count is right");
    });

    test(`strict ones wait for each other, and keep the bound; one ${outcome}: ${of}`, async (t) => {
      const maxPending = { ...bound, whenFull: "drop_oldest", strict: true };
      const world = await engine(t, { gates: [], maxPending });
      const [, second, third] = await world.stage(["a", "a", "a"]);
      const [rival, later] = [await world.session(), await world.session()];
      await rival.query("begin");
      const [rivals] = await world.stage("a", { as: rival });
      const late = world.stage("a", { as: later });
      await world.waitsForLock(later);
      await rival.query(commits ? "commit" : "rollback");
      const [mine] = await late;
      t.deepEqual(await idsIn(world), commits ? [third, rivals, mine] : [second, third, mine]);
      t.is(await world.number("select dispatch_policy_internal._sweep_pending()"), 0, "the count is right");
    });
  }
}

test("what a policy drops is its own oldest, found beside the older jobs of others without a walk past them", async (t) => {
  const others = await engine(t, { gates: [], policy: "others" });
  await others.stage(Array(3000).fill("x"));
  const world = new Engine(others.url, others.pool, {
    ...{ gates: [], policy: "p", maxPending: { policy: 10, whenFull: "drop_oldest" } },
  });
  await world.declare();
  const ids = await world.stage(Array.from({ length: 10 }, (_, n) => `k${n}`));
  /** How many rows of the table this session's transaction has read, by whichever function. */
  const read = `select seq_tup_read + idx_tup_fetch as rows from pg_stat_xact_all_tables
    where relid = '${nameOf("staged_jobs")}'::regclass`;
  const brought: string[] = [];
  for (const statistics of ["none", "fresh"]) {
    if (statistics === "fresh") await world.pool.query(`vacuum analyze ${nameOf("staged_jobs")}`);
    const producer = await world.session(); // it plans anew
    await producer.query("begin");
    brought.push(...(await world.stage("late", { as: producer })));
    const { rows } = await producer.query(read);
    await producer.query("commit");
    const looked = Number(rows[0].rows);
    t.true(looked > 0 && looked < 30, `${looked} rows read, statistics: ${statistics}`);
  }
  const { rows } = await world.pool.query(
    "select id from dispatch_policy.staged_jobs where policy = 'p' order by id",
  );
  t.deepEqual(
    rows.map(({ id }) => id),
    [...ids.slice(2), ...brought],
  );
  t.is(await others.staged(), 3010);
});

test("jobs staged before their policy dropped the oldest are dropped, too", async (t) => {
  const world = await engine(t, { gates: [], maxPending: { policy: 3 } });
  const [, ...left] = await world.stage(["a", "b", "c"]);
  const dropping = new Engine(world.url, world.pool, {
    ...{ gates: [], maxPending: { policy: 3, whenFull: "drop_oldest" } },
  });
  await dropping.declare();
  await world.number("select dispatch_policy_internal._sweep_pending()");
  const [last] = await dropping.stage("d");
  const { rows } = await world.pool.query("select id from dispatch_policy.staged_jobs order by id");
  t.deepEqual(
    rows.map(({ id }) => id),
    [...left, last],
  );
});
