// Producers of a bounded backlog, beside each other and beside a tick.
import test from "ava";
import { concurrency, Engine, engine } from "../../helpers/engine.ts";

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
  t.is(
    await world.number("select count(*)::int from dispatch_policy._private_staged_jobs where id = $1", [
      second,
    ]),
    1,
  );
  await ticking.query("commit");
  t.deepEqual(
    await world.number(
      "select count(*)::int from dispatch_policy._private_in_flight_jobs where staged_id = $1",
      [first],
    ),
    1,
  );
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
  t.is(await world.number("select dispatch_policy._sweep_pending()"), 0);
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
  await world.pool.query("select from dispatch_policy._stage($1, 'replace')", [JSON.stringify([batch])]);
  t.is(await world.number("select count(*)::int from dispatch_policy._private_staged_jobs"), 3);
});
