// Limits that change while ticks and releases run.
import test, { type ExecutionContext } from "ava";
import {
  adaptive,
  concurrency,
  type Engine,
  engine,
  sliding,
  type TestGate,
  throttle,
} from "../../helpers/engine.ts";
import { random as randomNumbers, seedOf } from "../../helpers/random.ts";

const cap = (max: number) => [concurrency(max)];
const all = (max: number) => [concurrency(max, { name: "all", scope: "policy" })];

async function maxOf(world: Engine, gate: string): Promise<number> {
  return (await world.limiter(gate)).max;
}

test("an arrival that commits late but was staged earlier does not bring old limits back", async (t) => {
  const world = await engine(t, { gates: cap(1) });
  await world.stage("a");
  await world.route();
  const late = await world.session();
  await late.query("begin");
  await world.stage("a", { as: late, gates: cap(5) });
  await world.stage("a", { gates: cap(10) });
  await world.route();
  t.is(await maxOf(world, "concurrency"), 10);

  await late.query("commit");
  await world.route();
  t.is(await maxOf(world, "concurrency"), 10);
  t.is((await world.admit()).admitted, 3, "its job counts all the same");
});

test("nor when the newer arrival made the partition", async (t) => {
  const world = await engine(t, { gates: cap(1) });
  const late = await world.session();
  await late.query("begin");
  await world.stage("a", { as: late, gates: cap(5) });
  await world.stage("a", { gates: cap(10) });
  await world.route();

  await late.query("commit");
  await world.route();
  t.is(await maxOf(world, "concurrency"), 10);
});

test("a shared limit follows the newest arrival of any partition, however late an older one commits", async (t) => {
  const world = await engine(t, { gates: all(1) });
  await world.stage(["a", "b"]);
  await world.route();
  const late = await world.session();
  await late.query("begin");
  await world.stage("a", { as: late, gates: all(5) });
  await world.stage("b", { gates: all(10) });
  await world.route();
  t.is(await maxOf(world, "all"), 10);

  await late.query("commit");
  await world.route();
  t.is(await maxOf(world, "all"), 10);
});

test("nor does a late arrival of a partition nobody knew yet bring a shared limit back", async (t) => {
  const world = await engine(t, { gates: all(1) });
  await world.stage("b");
  await world.route();
  const late = await world.session();
  await late.query("begin");
  await world.stage("new", { as: late, gates: all(5) });
  await world.stage("b", { gates: all(10) });
  await world.route();

  await late.query("commit");
  await world.route();
  t.is(await maxOf(world, "all"), 10);
});

for (const [scope, limits] of [
  ["partition", cap],
  ["shared", all],
] as const) {
  test(`a ${scope} limit that was confirmed meanwhile does not go back to a late, earlier one`, async (t) => {
    const world = await engine(t, { gates: limits(10) });
    await world.stage("a");
    await world.route();
    const late = await world.session();
    await late.query("begin");
    await world.stage("a", { as: late, gates: limits(5) });
    await world.stage("a");
    await world.route();

    await late.query("commit");
    await world.route();
    t.is((await world.limiter(limits(10)[0]!.name)).max, 10);
  });
}

test("a shared limit another partition confirmed meanwhile comes right again with the next arrival", async (t) => {
  const world = await engine(t, { gates: all(10) });
  await world.stage(["a", "b"]);
  await world.route();
  const late = await world.session();
  await late.query("begin");
  await world.stage("a", { as: late, gates: all(5) });
  await world.stage("b");
  await world.route();
  await late.query("commit");
  await world.route();

  await world.stage("b");
  await world.route();
  t.is(await maxOf(world, "all"), 10);
});

test("a partition that goes back to earlier limits gets them", async (t) => {
  const world = await engine(t, { gates: cap(1) });
  for (const max of [5, 10, 5]) {
    await world.stage("a", { gates: cap(max) });
    await world.route();
    t.is(await maxOf(world, "concurrency"), max);
  }
});

test("a changed scope key moves later admissions only; what is in flight frees where it took", async (t) => {
  const scoped = (key: string): TestGate[] => [concurrency(1, { name: "account", scope: () => key })];
  const world = await engine(t, { gates: scoped("old") });
  await world.stage("a");
  await world.passes();
  await world.stage("a", { gates: scoped("new") });
  t.is(await world.passes(), 1);
  t.is((await world.limiter("account", "old")).in_flight, 1);
  t.is((await world.limiter("account", "new")).in_flight, 1);

  const [first] = await world.inFlight();
  await world.release([first!]);
  t.is((await world.limiter("account", "old")).in_flight, 0);
  t.is((await world.limiter("account", "new")).in_flight, 1);
});

test("routers that change limits, ticks and releases beside each other never deadlock", async (t) => {
  const world = await engine(t, { gates: [] });
  const chance = randomNumbers(seedOf(t));
  const { below: random } = chance;
  const randomGates = () => [
    concurrency(2 + random(3)),
    concurrency(10 + random(3), { name: "account", scope: (key) => `${Number(key.slice(1)) % 4}` }),
    concurrency(30 + random(3), { name: "all", scope: "policy" }),
  ];
  const end = Date.now() + Number(process.env.RACE_SECONDS ?? 5) * 1000;
  const failures: Record<string, number> = {};
  const repeat = async (what: string, act: () => Promise<unknown>) => {
    let rounds = 0;
    while (Date.now() < end) {
      rounds++;
      await act().catch((error) => {
        const failure = `${what}: ${error.code} ${error.message}`;
        failures[failure] = (failures[failure] ?? 0) + 1;
      });
    }
    return rounds;
  };
  const tick = () => world.admit({ claim: 10 });
  const release = async () => {
    const jobs = await world.inFlight();
    await world.release(jobs.filter(() => chance.chance(0.3)));
  };
  const stage = () => {
    const keys = Array.from({ length: 20 }, () => `k${random(30)}`);
    return world.stage(keys, { gates: randomGates() });
  };
  const rounds = await Promise.all([
    repeat("stage", stage),
    repeat("route", () => world.route()),
    ...[1, 2, 3].map(() => repeat("tick", tick)),
    ...[1, 2].map(() => repeat("release", release)),
  ]);

  t.deepEqual(failures, {});
  t.true(
    rounds.every((n) => n > 10),
    rounds.join(),
  );
  t.is(await world.wrongCounters(), 0);
});

for (const [victim, patience] of [
  // a session looks for a deadlock once, this long after its wait began: by then the other one must wait as well
  ["the admit", ["3s", "1min"]],
  ["the release", ["1min", "3s"]],
] as const) {
  // It routes, and locks the cap of all, whose number changes. Then it locks a lower limiter, as the release does first.
  test(`an operator's admit and a release that wait for each other's limiters both get by, if PostgreSQL ends the wait of ${victim}`, async (t) => {
    const world = await engine(t, { gates: all(5) });
    await world.stage("b");
    t.is(await world.passes(), 1);
    const [job] = await world.inFlight();
    await world.waitsLong();
    await world.stage("a", { gates: all(6) });
    const [app, operator, worker] = [await world.session(), await world.session(), await world.session()];
    await operator.query(`set deadlock_timeout = '${patience[0]}'`);
    await worker.query(`set deadlock_timeout = '${patience[1]}'`);
    await app.query("begin");
    await world.table("limiters", app).lock({ kind: "ahead" });
    const releasing = world.release([job!], worker);
    await world.waitsForLock(worker);
    const admitting = operator.query("select changed from dispatch_policy.admit('p', 1)");
    await world.waitsForLock(operator);
    await app.query("commit");
    const { changed } = (await admitting).rows[0];
    const released = await releasing;
    t.is((await world.limiter("all")).max, 6);
    t.deepEqual([changed, released], victim === "the admit" ? [0, [job]] : [1, []]);
    t.is(changed + (await world.passes(2)), 1);
    await world.release([job!]);
    t.is((await world.limiter("all")).in_flight, 1);
    t.is(await world.wrongCounters(), 0);
  });
}

/** A bucket of the partition's own, of one token an hour, that has been emptied. */
async function emptied(t: ExecutionContext): Promise<Engine> {
  const world = await engine(t, {
    gates: [throttle(1, { name: "second" }), throttle(1, { per: 3600, name: "hour" })],
  });
  await world.stage(["a", "a", "a"]);
  t.is(await world.passes(2), 1);
  return world;
}

/** Routes and admits once, so many seconds from now. */
async function passIn(world: Engine, seconds: number): Promise<number> {
  const now = new Date(Date.now() + seconds * 1000);
  await world.pool.query("select dispatch_policy_internal._route($1, $2, 10000)", [world.policy, now]);
  return (await world.admit({ now })).admitted;
}

test("a partition that waits for its own bucket is told when an arrival raises its rate", async (t) => {
  const world = await emptied(t);
  const raised = [throttle(1, { name: "second" }), throttle(1, { per: 10, name: "hour" })];
  await world.stage("a", { gates: raised });
  t.is(await passIn(world, 0), 0);
  t.is(await passIn(world, 20), 1, "ten seconds later, not an hour");
});

test("and when an operator does, and when that ends", async (t) => {
  const world = await emptied(t);
  const until = new Date(Date.now() + 60_000);
  await world.pool.query(
    `select dispatch_policy.set_limit('p', 'hour', '{"rate": 0, "per": 86400}', key => 'a', until => $1)`,
    [until],
  );
  t.is(await passIn(world, 0), 0);
  await world.pool.query(`select dispatch_policy.set_limit('p', 'hour', '{"per": 10}', until => $1)`, [
    until,
  ]);
  t.is(await passIn(world, 20), 0, "one of its key goes before one of all keys");
  await world.pool.query("select dispatch_policy.clear_limit('p', 'hour', key => 'a')");
  t.is(await passIn(world, 25), 1);
});

test("a release is no news to who waits for a bucket", async (t) => {
  const world = await emptied(t);
  await world.finish(await world.inFlight());
  t.is(await world.table("freed").count(), 0);
});

test("a rate of zero admits no job, not even one that costs nothing", async (t) => {
  const world = await engine(t, { gates: [throttle(0)] });
  await world.stage("a", { cost: 0 });
  t.is(await world.passes(2), 0);
});

test("a partition that moves to another scope no longer waits for the one it left", async (t) => {
  const by = (account: string) => [concurrency(1, { name: "account", scope: () => account })];
  const world = await engine(t, { gates: by("full") });
  await world.stage(["a", "b"]);
  t.is(await world.passes(2), 1);
  const waiting = (await world.partition("a")).blocked_on === null ? "b" : "a";
  await world.stage(waiting, { gates: by("free") });
  t.is(await world.passes(2), 1);
});

for (const scope of ["partition", "policy"] as const) {
  test(`a cheap job that goes before a dear one does not wait until there is enough for that: ${scope}`, async (t) => {
    const world = await engine(t, { gates: [throttle(1, { per: 3600, burst: 10, scope })] });
    await world.stage("a", { cost: 7 });
    t.is(await world.passes(), 1);
    await world.stage("a", { cost: 7 });
    t.is(await world.passes(2), 0);
    await world.stage("a", { cost: 1, priority: -1 });
    t.is(await world.passes(2), 1);
    t.is(await world.passes(2), 0);
  });
}

for (const scope of ["partition", "policy"] as const) {
  const options = { name: "gate", scope };
  const three = [concurrency(3, options)];
  const twoAnHour = [throttle(2, { per: 3600, ...options })];
  const twoInAnyHour = [sliding(2, { per: 3600, ...options })];
  const learning = [adaptive(1, options)];

  test(`a gate that becomes a throttle under its old name is one: ${scope}`, async (t) => {
    const world = await engine(t, { gates: three });
    await world.stage(Array(10).fill("a"));
    t.is(await world.passes(2), 3);
    await world.stage("a", { gates: twoAnHour });
    t.is(await world.passes(2), 2);
    await world.finish(await world.inFlight());
    t.is(await world.passes(2), 0);
    t.is((await world.limiter("gate")).in_flight, 0);
  });

  test(`one that becomes a cap counts those who come from then on: ${scope}`, async (t) => {
    const world = await engine(t, { gates: twoAnHour });
    await world.stage(Array(10).fill("a"));
    t.is(await world.passes(2), 2);
    const before = await world.inFlight();
    await world.stage("a", { gates: three });
    t.is(await world.passes(2), 3);
    await world.finish(before);
    t.is(await world.passes(2), 0);
    await world.stage("a", { gates: learning });
    await world.finish(await world.inFlight());
    t.is(await world.passes(2), 1);
  });

  for (const [title, limited] of Object.entries({ bucket: twoAnHour, window: twoInAnyHour })) {
    test(`deployments that do not agree on a gate's kind do not fill its ${title} again: ${scope}`, async (t) => {
      const world = await engine(t, { gates: limited });
      await world.stage(Array(20).fill("a"));
      t.is(await world.passes(2), 2);
      await world.finish(await world.inFlight());
      for (const admitted of [3, 3]) {
        await world.stage("a", { gates: three });
        t.is(await world.passes(2), admitted);
        await world.finish(await world.inFlight());
        await world.stage("a", { gates: limited });
        t.is(await world.passes(2), 0);
      }
    });
  }
}
