// A limiter that an application's transaction keeps locked, say by `take`, stops those who use it, and nobody else.
import test, { type ExecutionContext } from "ava";
import { concurrency, type EngineOptions, engine, type Queryable, throttle } from "../../helpers/engine.ts";
import { nameOf, table } from "../../helpers/table.ts";

const account = (max: number) => concurrency(max, { name: "account", scope: (key) => key.slice(0, 1) });
const lockA = (as: Queryable) => table(as, "limiters").lock({ scope_key: "a" }, "no key update");

/** A world with these jobs, in which an application's transaction has the limiter of a's account locked. */
async function held(t: ExecutionContext, jobs: string[], options: Partial<EngineOptions> = { ahead: 100 }) {
  const world = await engine(t, { gates: [account(2)], ...options });
  await world.stage(jobs);
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await lockA(app);
  return { world, app };
}

for (const ahead of [undefined, 100]) {
  const kind = ahead === undefined ? "a pass" : "a pass that keeps to the ahead bound";

  test(`${kind} goes on without the partitions whose limiter is locked, and later takes them`, async (t) => {
    const { world, app } = await held(t, ["a1", "a2", "b1", "c1"], ahead ? { ahead } : {});
    t.like(await world.admit(), { claimed: 4, admitted: 2, denied: {} });
    t.is((await world.admit()).admitted, 0);
    const { eligible_at, blocked_on, denied_reason } = await world.partition("a1");
    t.true(eligible_at.getTime() < Date.now() + 2000, "looked at again in a moment");
    t.deepEqual([blocked_on, denied_reason], [null, null]);
    await app.query("rollback");
    t.is((await world.admit({ now: new Date(eligible_at.getTime() + 1) })).admitted, 2);
  });
}

test("a pass that is ahead of the clock postpones no longer than one by the clock", async (t) => {
  const { world } = await held(t, ["a1", "b1"]);
  const inAnHour = () => new Date(Date.now() + 3_600_000);
  for (const admitted of [1, 0, 0]) {
    t.is((await world.admit({ now: inAnHour() })).admitted, admitted);
    t.true((await world.partition("a1")).eligible_at.getTime() < Date.now() + 2000);
  }
});

test("only the first pass waits for a limiter that stays locked", async (t) => {
  const { world, app } = await held(t, ["a1", "b1"]);
  t.is((await world.admit()).admitted, 1);
  const limiter = await world.limiter("account", "a");
  const busy = async () => (await world.table("turns").one({ step: "admit" })).busy;
  t.deepEqual(Object.keys(await busy()), [limiter.id]);
  await world.stage(["a2", "b1"]);
  await world.route();
  await world.pool.query(`alter function dispatch_policy_internal._lock_limiters_soon rename to _lock_limiters_then;
    create function dispatch_policy_internal._lock_limiters_soon(ids bigint[]) returns ${nameOf("limiters")}[]
    language plpgsql as $$ begin
      if ${limiter.id} = any(ids) then
        raise 'it waits for the limiter';
      end if;
      return dispatch_policy_internal._lock_limiters_then(ids);
    end $$`);
  t.is((await world.admit()).admitted, 1);
  await app.query("rollback");
  await world.pool.query(`drop function dispatch_policy_internal._lock_limiters_soon;
    alter function dispatch_policy_internal._lock_limiters_then rename to _lock_limiters_soon`);
  t.is((await world.admit({ now: new Date(Date.now() + 2000) })).admitted, 2);
  t.deepEqual(await busy(), {}, "forgotten once it was free");
});

test("passes go on while an application holds a throttle it took from, and others who take are told when to ask", async (t) => {
  const world = await engine(t, {
    gates: [throttle(100, { name: "own" }), concurrency(9, { name: "all", scope: "policy" })],
  });
  await world.stage(["a", "b"]);
  t.is(await world.passes(), 2);
  const take = async (as: Queryable, key: string) =>
    (await as.query("select * from dispatch_policy.take('p', 'own', $1)", [key])).rows[0];
  const app = await world.session();
  await app.query("begin");
  t.like(await take(app, "a"), { taken: true, retry_at: null });
  t.true((await take(app, "a")).taken, "what it holds itself it does not wait for");

  const refused = await take(world.pool, "a");
  t.false(refused.taken);
  t.true(refused.retry_at.getTime() < Date.now() + 1000);
  t.true((await take(world.pool, "b")).taken);
  await world.stage(["a", "b"]);
  await world.route();
  t.is((await world.admit()).admitted, 1, "that of b");
  await app.query("commit");
  t.is((await world.admit({ now: new Date(Date.now() + 2000) })).admitted, 1);
  t.is(await world.wrongCounters(), 0);
});

test("nobody is looked at while the limiter of the whole policy's bound is locked", async (t) => {
  const world = await engine(t, { gates: [concurrency(2)], ahead: 100 });
  await world.stage(["a", "b"]);
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await world.table("limiters", app).lock({ gate: "ahead" }, "no key update");
  t.like(await world.admit(), { claimed: 0, admitted: 0 });
  const later = new Date(Date.now() + 2000);
  t.like(await world.admit({ now: later }), { claimed: 0, admitted: 0 });
  await app.query("rollback");
  t.like(await world.admit({ now: later }), { claimed: 2, admitted: 2 });
});

test("an operator's admit goes on without the partitions whose limiter is locked", async (t) => {
  const world = await engine(t, { gates: [account(0)] });
  await world.stage(["a1", "b1", "c1"]);
  await world.passes();
  const app = await world.session();
  await app.query("begin");
  await lockA(app);
  const admit = "select matched, changed from dispatch_policy.admit('p', 5)";
  t.deepEqual((await world.pool.query(admit)).rows, [{ matched: 2, changed: 2 }]);
  await app.query("rollback");
  t.deepEqual((await world.pool.query(admit)).rows, [{ matched: 1, changed: 1 }]);
});

test("a tick in SQL goes on without them, too", async (t) => {
  const { world, app } = await held(t, ["a1", "b1", "c1"], {});
  t.is(await world.number("select admitted from dispatch_policy.tick('p')"), 2);
  await app.query("rollback");
  const later = new Date(Date.now() + 2000);
  t.is(await world.number("select admitted from dispatch_policy.tick('p', now => $1)", [later]), 1);
});

test("an application that took and then stops a partition does not wait for a pass that waits for it", async (t) => {
  const world = await engine(t, { gates: [throttle(100, { name: "own" })] });
  await world.stage("a");
  t.is(await world.passes(), 1);
  const app = await world.session();
  await app.query("begin");
  await app.query("select dispatch_policy.take('p', 'own', 'a')");
  await world.stage("a");
  await world.route();
  const ticking = await world.session();
  const pass = world.admit({ as: ticking });
  await app.query("select dispatch_policy.hold('p', 'a', now() + interval '1 hour')");
  await app.query("commit");
  await t.notThrowsAsync(pass);
  t.is(await world.passes(2), 0);
});
