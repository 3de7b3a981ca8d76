// The ahead bound rises without a release: when a worker pool comes, comes back, or gets more slots.
import test from "ava";
import { type Engine, engine, type Queryable, until } from "../../helpers/engine.ts";

/** Two jobs wait for workers, of which there are none. */
async function nobodyWorks(t: Parameters<typeof engine>[0]): Promise<Engine> {
  const it = await engine(t, { gates: [], ahead: 0 });
  await it.stage(["a", "b"]);
  t.is(await it.passes(2), 0);
  t.is((await it.partition("a")).denied_reason, "ahead_full");
  return it;
}

async function heartbeat(it: Engine, { slots = 1, staleAfter = "1 hour", as = it.pool as Queryable } = {}) {
  const text = "select dispatch_policy._worker_alive('pool', $1, $2, 'host', 1, $3, '0')";
  await as.query(text, [slots, [it.policy], staleAfter]);
}

/** What a leader's heartbeat asks: is there something to tick for? */
async function waits(it: Engine): Promise<boolean> {
  const text = "select waiting from dispatch_policy._lease('leader', $1, null, '1 hour', true)";
  return (await it.pool.query(text, [[it.policy]])).rows[0].waiting;
}

test("a pool that comes lets those go who wait for it, and the leader is told by its own heartbeat", async (t) => {
  const it = await nobodyWorks(t);
  t.is(await waits(it), false);
  await heartbeat(it);
  t.is(await waits(it), true);
  t.is(await it.passes(), 1);
  t.is(await waits(it), false, "there is one slot");

  await heartbeat(it, { slots: 2 });
  t.is(await waits(it), true);
  t.is(await it.passes(), 1);
});

test("a pool that comes while a tick decides without it is not overlooked", async (t) => {
  const it = await engine(t, { gates: [], ahead: 0 });
  await it.stage("a");
  await it.route();
  const ticking = await it.session();
  await ticking.query("begin");
  t.is((await it.admit({ as: ticking })).admitted, 0);
  await heartbeat(it);
  await it.route();
  t.is((await it.partition("a")).blocked_on, null, "the tick has not said yet that it waits");

  await ticking.query("commit");
  t.not((await it.partition("a")).blocked_on, null);
  t.is(await waits(it), true);
  t.is(await it.passes(), 1);
});

test("a heartbeat waits for no tick, and no sweep calls it a repair what the next pass does", async (t) => {
  const it = await nobodyWorks(t);
  const ticking = await it.session();
  await ticking.query("begin");
  await ticking.query("select from dispatch_policy._private_limiters for no key update");
  const beating = await it.session();
  await beating.query("set lock_timeout = '10ms'");
  await heartbeat(it, { as: beating });
  await ticking.query("rollback");

  const { rows } = await it.pool.query("select * from dispatch_policy._sweep_partitions(clock_timestamp())");
  t.deepEqual(rows, [{ woken: 0, unblocked: 0 }]);
  t.is(await it.passes(), 1);
});

test("loops are told of slots that are new, and of no others", async (t) => {
  const it = await nobodyWorks(t);
  const listening = await it.session();
  const told: unknown[] = [];
  listening.on("notification", ({ payload }) => told.push(JSON.parse(payload ?? "").policy));
  await listening.query("listen dispatch_policy");
  await heartbeat(it, { slots: 0 });
  await heartbeat(it);
  await heartbeat(it);
  await heartbeat(it, { staleAfter: "1 millisecond" });
  await until("it is silent", () =>
    it.number("select bool_and(stale_at < clock_timestamp())::int from dispatch_policy._private_workers"),
  );
  await heartbeat(it);
  await heartbeat(it, { slots: 2 });
  await heartbeat(it);
  await it.pool.query("select pg_notify('dispatch_policy', $1)", [JSON.stringify({ policy: "last" })]);
  await until("all notes have come", async () => told.at(-1) === "last");
  t.deepEqual(told, [...Array(3).fill(it.policy), "last"], "new, back, more");
});

test("a pass that keeps to the bound waits for the one before, and ranks all that are eligible then", async (t) => {
  const it = await engine(t, { gates: [], ahead: 6 });
  await it.stage(Array(8).fill("cold"), { runAt: new Date(Date.now() - 60_000) });
  await it.stage(Array(8).fill("hot"));
  await it.route();
  await it.pool.query(
    "update dispatch_policy._private_partitions set decayed_admits = 100, fair_key = 1e9 where key = 'hot'",
  );
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  t.is((await it.admit({ as: first, claim: 1 })).admitted, 6);
  const beside = it.admit({ as: second });
  await it.waitsForLock(second);
  await first.query("rollback");
  t.is((await beside).admitted, 6);
  t.is((await it.inFlight("cold")).length, 6);
});
