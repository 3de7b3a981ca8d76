// What ticks and releases do beside transactions that others leave open, and how they end when their own is cut.
import test from "ava";
import { concurrency, Engine, engine, until } from "../../helpers/engine.ts";

const ROOMY = { gates: [concurrency(9, { name: "all", scope: "policy" })] };
const STAGED = "dispatch_policy._private_staged_jobs";

test("a staged row that an open transaction removed is skipped, and nothing is charged for it", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  const [removed] = await world.stage(["a", "a"]);
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await app.query(`delete from ${STAGED} where id = $1`, [removed]);

  t.is((await world.admit()).admitted, 1, "without waiting");
  t.is((await world.limiter("concurrency")).in_flight, 1);
  await app.query("commit");
  t.is(await world.passes(2), 0);
  t.is(await world.staged(), 0);
  t.is(await world.wrongCounters(), 0);
});

test("a staged row whose removal is rolled back is admitted soon after", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("a");
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await app.query(`delete from ${STAGED}`);
  t.is((await world.admit()).admitted, 0);
  await app.query("rollback");

  await until("the job is admitted", async () => (await world.passes()) === 1);
});

test("a keyed job that an open transaction replaces holds up neither tick nor unrelated release", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage("b");
  await world.passes();
  const [running] = await world.inFlight("b");
  await world.stage("a", { jobKey: "K1" });
  await world.stage("c");
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await world.stage("a", { jobKey: "K1", as: app });

  t.is((await world.admit()).admitted, 1, "that of c");
  t.deepEqual(await world.release([running!]), [running]);
  await app.query("commit");
  await until("the keyed job is admitted", async () => (await world.passes()) === 1);
  t.is(await world.wrongCounters(), 0);
});

test("a queue name that an open transaction brought in makes a tick busy, and no release late", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage("b");
  await world.passes();
  const [running] = await world.inFlight("b");
  await world.stage("a", { queueName: "new" });
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await app.query("select graphile_worker.add_job('other', queue_name => 'new')");
  const ticking = await world.session();
  const tick = t.throwsAsync(world.admit({ as: ticking }), { code: "55P03" });
  await world.waitsForLock(ticking);

  // it holds what the policy's releases need, and gives up soon: 250 ms
  const releasing = await world.session();
  await releasing.query("set lock_timeout = '1500ms'");
  t.deepEqual(await world.release([running!], releasing), [running]);
  await tick;
  t.is(await world.staged(), 1, "busy, not a bad row");
  t.is(await world.number(`select count(*)::int from ${STAGED} where failures > 0`), 0);
  await app.query("rollback");
  t.is(await world.passes(), 1);
});

test("a tick busy with one policy's queue name delays no release of another policy", async (t) => {
  const world = await engine(t, ROOMY);
  const other = new Engine(world.url, world.pool, { ...ROOMY, policy: "other" });
  await other.declare();
  await other.stage("b");
  await other.passes();
  const [running] = await other.inFlight("b");
  await world.stage("a", { queueName: "new" });
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await app.query("select graphile_worker.add_job('any', queue_name => 'new')");
  const ticking = await world.session();
  await ticking.query("begin");
  const tick = t.throwsAsync(world.admit({ as: ticking }), { code: "55P03" });
  await world.waitsForLock(ticking);
  // as long as this transaction is open the tick's limiters are locked, and a release waits for locks for 5 s at most
  t.deepEqual(await other.release([running!]), [running]);
  await tick;
});

for (const level of ["repeatable read", "serializable"]) {
  test(`a tick under ${level} is refused`, async (t) => {
    const world = await engine(t, ROOMY);
    await world.stage("a");
    await world.route();
    const caller = await world.session();
    await caller.query(`begin isolation level ${level}`);
    await t.throwsAsync(world.admit({ as: caller }), { message: /READ COMMITTED/ });
  });

  test(`a release under ${level} is refused`, async (t) => {
    const world = await engine(t, ROOMY);
    await world.stage("a");
    await world.passes();
    const jobs = await world.inFlight();
    const caller = await world.session();
    await caller.query(`begin isolation level ${level}`);
    await t.throwsAsync(world.release(jobs, caller), { message: /READ COMMITTED/ });
  });

  test(`a router under ${level} is refused`, async (t) => {
    const world = await engine(t, ROOMY);
    await world.stage("a");
    const caller = await world.session();
    await caller.query(`begin isolation level ${level}`);
    await t.throwsAsync(world.route(caller), { message: /READ COMMITTED/ });
  });
}

test("routing and admitting again in one transaction beside another tick does not deadlock", async (t) => {
  const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await world.stage(["a", "b"]);
  await world.route();
  const caller = await world.session();
  const other = await world.session();
  await caller.query("begin");
  t.is((await world.admit({ as: caller, claim: 1 })).admitted, 1, "holds the limiter");
  const tick = world.admit({ as: other, claim: 1 });
  await world.waitsForLock(other);
  await world.stage(["a", "b"]);

  await caller.query("select * from dispatch_policy.tick('p')");
  await caller.query("commit");
  t.is((await tick).admitted, 0);
  t.is((await world.inFlight()).length, 1);
  t.is(await world.wrongCounters(), 0);
});

test("SQL ticks over all policies beside each other do not deadlock", async (t) => {
  const world = await engine(t, ROOMY);
  const keys = Array.from({ length: 20 }, (_, i) => `k${i}`);
  await world.stage(keys.flatMap((key) => Array(10).fill(key)));
  const tickers = [1, 2, 3].map(async () => {
    for (let tick = 0; tick < 30; tick++) {
      await world.pool.query("select * from dispatch_policy.tick()");
      await world.release(await world.inFlight());
    }
  });
  await t.notThrowsAsync(Promise.all(tickers));
  t.is(await world.wrongCounters(), 0);
});

test("a backend killed inside an admission leaves everything as it was", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage(["a", "b", "c"]);
  await world.route();
  const killed = await world.session();
  await killed.query("begin");
  t.is((await world.admit({ as: killed })).admitted, 3);
  await world.pool.query("select pg_terminate_backend($1, 10000)", [killed.pid]);

  t.is(await world.staged(), 3);
  t.is((await world.inFlight()).length, 0);
  t.is((await world.limiter("all")).in_flight, 0);
  t.is(await world.number("select count(*)::int from graphile_worker.jobs"), 0);
  t.is((await world.admit()).admitted, 3);
});

test("a backend killed inside a release leaves the slot taken, for the next flush", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage("a");
  await world.passes();
  const jobs = await world.inFlight();
  const killed = await world.session();
  await killed.query("begin");
  await world.release(jobs, killed);
  await world.pool.query("select pg_terminate_backend($1, 10000)", [killed.pid]);

  t.is((await world.limiter("all")).in_flight, 1);
  t.deepEqual(await world.release(jobs), jobs);
  t.is((await world.limiter("all")).in_flight, 0);
});

test("a backend killed inside a routing loses no arrival", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage(["a", "b"]);
  const killed = await world.session();
  await killed.query("begin");
  await world.route(killed);
  await world.pool.query("select pg_terminate_backend($1, 10000)", [killed.pid]);

  t.is(await world.passes(), 2);
});
