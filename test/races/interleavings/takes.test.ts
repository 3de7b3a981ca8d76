// `take` from a bucket that no job has used yet, beside routing and other takes that make the same bucket.
import test from "ava";
import { type Engine, engine, type Queryable, throttle } from "../../helpers/engine.ts";
import { routineOf } from "../../helpers/table.ts";

const HOUR = { per: 3600 };
const OWN = { gates: [throttle(3, { ...HOUR, name: "own" })] };

interface Taken {
  readonly taken: boolean;
  readonly retry_at: Date | null;
}

async function take(as: Queryable, key: string): Promise<Taken> {
  return (await as.query("select * from dispatch_policy.take('p', 'own', $1)", [key])).rows[0];
}

/** From now on these wait for a lock for as long as the test has it. */
async function waitLong(it: Engine, ...functions: string[]): Promise<void> {
  for (const name of functions) await it.pool.query(`alter function ${routineOf(name)} set lock_timeout = 0`);
}

function buckets(it: Engine): Promise<number> {
  return it.table("limiters").count({ gate: "own" });
}

/** Stages five jobs of the key. What has gone after two passes is what its bucket had left. */
async function goesOfFive(it: Engine, key: string): Promise<number> {
  await it.stage(Array(5).fill(key));
  return it.passes(2);
}

for (const end of ["commit", "rollback"] as const) {
  test(`a router that comes while a take is making the same bucket waits for it: ${end}`, async (t) => {
    const it = await engine(t, OWN);
    await waitLong(it, "_route_batch");
    const [app, routing] = [await it.session(), await it.session()];
    const warnings: string[] = [];
    routing.on("notice", ({ message }) => warnings.push(message ?? ""));
    await app.query("begin");
    t.true((await take(app, "a")).taken);
    await it.stage("a");
    const routed = it.route(routing);
    await it.waitsForLock(routing);
    await app.query(end);
    t.is(await routed, 1, "at once, by the first try");
    t.deepEqual(warnings, []);
    t.is(await buckets(it), 1);
    t.is((await it.admit()).admitted + (await goesOfFive(it, "a")), end === "commit" ? 2 : 3);
  });

  test(`a take that comes while a router is making the same bucket waits for it: ${end}`, async (t) => {
    const it = await engine(t, OWN);
    await waitLong(it, "take");
    const [app, routing] = [await it.session(), await it.session()];
    await it.stage("a");
    await routing.query("begin");
    t.is(await it.route(routing), 1);
    const taken = take(app, "a");
    await it.waitsForLock(app);
    await routing.query(end);
    t.true((await taken).taken);
    t.is(await buckets(it), 1);
    t.is((await it.passes()) + (await goesOfFive(it, "a")), 2);
  });

  test(`of two takes that make the same bucket the second waits for the first: ${end}`, async (t) => {
    const it = await engine(t, OWN);
    await waitLong(it, "take");
    const [first, second] = [await it.session(), await it.session()];
    await first.query("begin");
    t.true((await take(first, "a")).taken);
    const taken = take(second, "a");
    await it.waitsForLock(second);
    await first.query(end);
    t.true((await taken).taken);
    t.is(await goesOfFive(it, "a"), end === "commit" ? 1 : 2);
  });
}

test("a pass waits for a sync, and goes by what that has left", async (t) => {
  const it = await engine(t, { gates: [throttle(5, { ...HOUR, name: "own" })] });
  await it.waitsLong();
  await it.stage(Array(5).fill("a"));
  await it.route();
  const [app, passing] = [await it.session(), await it.session()];
  await app.query("begin");
  await app.query("select from dispatch_policy.sync('p', 'own', 2, key => 'a')");
  const pass = it.admit({ as: passing });
  await it.waitsForLock(passing);
  await app.query("commit");
  t.is((await pass).admitted, 2);
  t.is(await it.table("freed").count(), 0, "it wakes nobody");
});

test("a take that stays open delays the jobs of its key, and no others", async (t) => {
  const it = await engine(t, OWN);
  const app = await it.session();
  await app.query("begin");
  t.true((await take(app, "a")).taken);
  await it.stage(["a", "b", "c"]);
  t.is(await it.passes(2), 2, "those of b and c");
  t.like(await take(it.pool, "a"), { taken: false }, "and another take is told when to ask");
  await app.query("commit");
  t.is((await it.passes()) + (await goesOfFive(it, "a")), 2);
});

const LOCKED: Record<string, (it: Engine, by: Queryable) => Promise<unknown>> = {
  "another take": (_, by) => take(by, "a"),
  "a router that makes it": async (it, by) => {
    await it.stage("a");
    return it.route(by);
  },
  "an application that locks its row": async (it, by) => {
    await take(it.pool, "a");
    return it.table("limiters", by).lock({ gate: "own", scope_key: "a" });
  },
};

for (const [who, lock] of Object.entries(LOCKED)) {
  test(`a take gives up by its own bound, whatever the session's is, while ${who} has the bucket`, async (t) => {
    const it = await engine(t, OWN);
    const [other, app] = [await it.session(), await it.session()];
    await other.query("begin");
    await lock(it, other);
    // far longer than the bound: a take that waits on gets its token after it
    const holding = other.query("select pg_sleep(15)").then(() => other.query("commit"));
    holding.catch(() => {});
    for (const patience of ["0", "1min"]) {
      await app.query(`set lock_timeout = '${patience}'`);
      const now = new Date();
      const { rows } = await app.query("select * from dispatch_policy.take('p', 'own', 'a', now => $1)", [
        now,
      ]);
      t.deepEqual(rows, [{ taken: false, retry_at: new Date(now.getTime() + 250) }]);
    }
    await it.pool.query("select pg_cancel_backend($1)", [other.pid]);
    await t.throwsAsync(holding, { message: /canceling statement/ });
    await other.query("rollback");
    t.true((await take(app, "a")).taken);
  });
}

test("a lock timeout that PostgreSQL reports as a cancel is an answer, and the transaction goes on", async (t) => {
  const it = await engine(t, OWN);
  t.true((await take(it.pool, "a")).taken);
  const app = await it.session();
  // it does so if the timeout fires between two waits, which no test can arrange
  const cancel =
    "perform pg_sleep(0.3); raise 'canceling statement due to user request' using errcode = '57014'";
  const cancelsNoMore = await it.table("limiters", app).before("update", cancel);
  await app.query("begin");
  const { taken, retry_at } = await take(app, "a");
  t.false(taken);
  t.truthy(retry_at);
  await cancelsNoMore();
  t.true((await take(app, "a")).taken, "its transaction goes on");
  await app.query("rollback");
});

test("a cancel that comes before a take's own bound stays one", async (t) => {
  const it = await engine(t, OWN);
  await it.pool.query("alter function dispatch_policy.take set lock_timeout = '1h'");
  const [other, app] = [await it.session(), await it.session()];
  await other.query("begin");
  t.true((await take(other, "a")).taken);
  const waiting = t.throwsAsync(take(app, "a"), { code: "57014" });
  await it.waitsForLock(app);
  await it.pool.query("select pg_cancel_backend($1)", [app.pid]);
  await waiting;
  await other.query("rollback");
});

for (const patience of ["1s", "10ms"]) {
  test(`a take and a router wait for each other's new bucket: the take gives up, deadlock_timeout ${patience}`, async (t) => {
    const it = await engine(t, OWN);
    await waitLong(it, "_route_batch");
    const [app, routing] = [await it.session(), await it.session()];
    await app.query(`set deadlock_timeout = '${patience}'`);
    await routing.query("set deadlock_timeout = '1min'"); // it does not look, and so is not the one that is ended
    await app.query("begin");
    t.true((await take(app, "b")).taken);
    await it.stage(["a", "b"]);
    const routed = it.route(routing); // it makes a's bucket, and then waits for b's
    await it.waitsForLock(routing);
    const { taken, retry_at } = await take(app, "a");
    t.false(taken);
    t.truthy(retry_at, "it gives up before PostgreSQL ends one of the two");
    t.true((await take(app, "b")).taken, "its transaction goes on");
    await app.query("commit");
    t.is(await routed, 2);
    t.is((await it.admit()).admitted, 2);
    t.is(await goesOfFive(it, "b"), 0);
    t.is(await goesOfFive(it, "a"), 2);
  });
}

test("a take makes a bucket anew that a sweep has just deleted", async (t) => {
  const it = await engine(t, OWN);
  await waitLong(it, "take");
  t.true((await take(it.pool, "a")).taken);
  const before = await it.limiter("own");
  const [app, sweeping] = [await it.session(), await it.session()];
  const inTwoDays = new Date(Date.now() + 2 * 86_400_000);
  await sweeping.query("begin");
  const collect = "select dispatch_policy_internal._collect_limiters($1, '1 day') as n";
  t.is((await sweeping.query(collect, [inTwoDays])).rows[0].n, 1);
  const taken = take(app, "a");
  await it.waitsForLock(app);
  await sweeping.query("commit");
  t.true((await taken).taken);
  t.not((await it.limiter("own")).id, before.id);
  t.is(await goesOfFive(it, "a"), 2);
});
