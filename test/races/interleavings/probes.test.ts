// A held partition comes back with one job first.
import test from "ava";
import { concurrency, type Engine, type EngineOptions, engine, throttle } from "../../helpers/engine.ts";
import { fetchJob } from "../../helpers/native.ts";

const HELD = `dispatch_policy.hold(policy => 'p', partition => $1, "for" => '0')`;
/** Held, and the hold is over. */
const wasHeld = (it: Engine, partition: string) => it.pool.query(`select ${HELD}`, [partition]);

async function world(t: Parameters<typeof engine>[0], options: Partial<EngineOptions> = {}) {
  const it = await engine(t, { gates: [concurrency(10)], ...options });
  await it.stage(Array(8).fill("a"));
  await it.route();
  return it;
}

const ended = (it: Engine, jobs: readonly string[], ok: boolean) =>
  it.pool
    .query("select graphile_worker.complete_jobs($1)", [jobs])
    .then(() => it.release(jobs.map((job) => ({ job, ok }))));

test("one goes first; once it has succeeded all follow", async (t) => {
  const it = await world(t);
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  const { denied_reason, denied_until } = await it.partition("a");
  t.deepEqual([denied_reason, denied_until], ["probing", Number.POSITIVE_INFINITY]);
  await ended(it, await it.inFlight(), true);
  t.is(await it.passes(2), 7);
});

test("once it has succeeded the next pass uses the whole bucket, and the one after is due with the next token", async (t) => {
  const it = await engine(t, { gates: [throttle(10)] });
  const from = Date.now() + 60_000;
  const at = (ms: number) => new Date(from + ms);
  await it.stage(Array(20).fill("a"));
  await it.route();
  await it.pool.query("select dispatch_policy.hold('p', 'a', $1)", [at(0)]);
  t.is((await it.admit({ now: at(-1) })).admitted, 0);
  t.is((await it.admit({ now: at(0) })).admitted, 1);
  await ended(it, await it.inFlight(), true);
  await it.route();
  t.is((await it.admit({ now: at(50) })).admitted, 9);
  const { eligible_at, held_until, probing } = await it.partition("a");
  t.deepEqual([held_until, probing], [Number.NEGATIVE_INFINITY, false]);
  t.true(Math.abs(eligible_at - from - 100) <= 1, `due ${eligible_at - from} ms after the hold`);
  t.is((await it.admit({ now: at(101) })).admitted, 1);
});

test("a probe that failed is followed by the next one", async (t) => {
  const it = await world(t);
  await wasHeld(it, "a");
  for (let probe = 0; probe < 3; probe++) {
    t.is(await it.passes(3), 1);
    await ended(it, await it.inFlight(), false);
  }
  t.is(await it.passes(3), 1);
  await ended(it, await it.inFlight(), true);
  t.is(await it.passes(3), 4);
});

test("a probe whose slot is freed, whose end nobody saw, is followed by the next one", async (t) => {
  const it = await world(t);
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  const [hanging] = await it.inFlight();
  await fetchJob(it, hanging!);
  await it.pool.query("select dispatch_policy.release_slots($1)", [hanging]);
  t.is(await it.passes(3), 1, "one alone, again");
  await ended(it, await it.inFlight(), true);
  t.is(await it.passes(3), 6);
});

test("jobs that were in flight before the hold are no probe", async (t) => {
  const it = await engine(t, { gates: [concurrency(3)] });
  await it.stage(Array(8).fill("a"));
  t.is(await it.passes(), 3);
  const before = await it.inFlight();
  await wasHeld(it, "a");
  await ended(it, before.slice(0, 2), true);
  t.is(await it.passes(3), 1);
  await ended(it, before.slice(2), true);
  t.is(await it.passes(3), 0, "the probe is out still");
  await ended(it, await it.inFlight(), true);
  t.is(await it.passes(3), 3);
});

test("a hold while the probe is out begins anew", async (t) => {
  const it = await world(t);
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  await wasHeld(it, "a");
  t.is(await it.passes(3), 0, "its outcome is not known");
  await ended(it, await it.inFlight(), false);
  t.is(await it.passes(3), 1);
});

test("work that arrives while the probe is out waits for it", async (t) => {
  const it = await engine(t, { gates: [concurrency(10)] });
  await it.stage("a");
  await it.route();
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  await it.stage(["a", "a"]);
  t.is(await it.passes(3), 0);
  await ended(it, await it.inFlight(), true);
  t.is(await it.passes(3), 2);
});

test("a partition that was held before its first job is probed too", async (t) => {
  const it = await engine(t, { gates: [concurrency(10)] });
  await wasHeld(it, "new");
  await it.stage(["new", "new"]);
  t.is(await it.passes(3), 1);
});

test("resume ends probing at once; pausing and resuming alone never starts it", async (t) => {
  const it = await world(t);
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  await it.pool.query("select dispatch_policy.resume(policy => 'p', partition => 'a')");
  t.is(await it.passes(3), 7);
  await it.stage(["b", "b"]);
  await it.route();
  await it.pool.query("select dispatch_policy.pause(policy => 'p', partition => 'b')");
  await it.pool.query("select dispatch_policy.resume(policy => 'p', partition => 'b')");
  t.is(await it.passes(3), 2);
});

test("a probe whose job is gone without an outcome is repaired by the sweep, and only then", async (t) => {
  const it = await world(t);
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  const sweep = () =>
    it.number("select unblocked from dispatch_policy_internal._sweep_partitions(clock_timestamp())");
  t.is(await sweep(), 0, "it is out");
  await ended(it, await it.inFlight(), true);
  t.is(await sweep(), 0, "its outcome is on its way");
  t.is(await it.passes(2), 7);

  await wasHeld(it, "a");
  await it.stage(["a", "a"]);
  await ended(it, await it.inFlight(), true);
  t.is(await it.passes(3), 1);
  await it.table("in_flight_jobs").remove();
  t.is(await sweep(), 1);
  t.is(await it.passes(3), 1);
});

test("a release beside the tick that admits the next probe: neither waits for the other, nothing is lost", async (t) => {
  const it = await world(t);
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  const probe = await it.inFlight();
  const releasing = await it.session();
  await releasing.query("begin");
  await it.release(probe, releasing);
  t.is(await it.passes(1), 0, "not committed yet");
  await releasing.query("commit");
  t.is(await it.passes(2), 7);
});

const breaker = { failures: 3, withinSeconds: 60, cooldownSeconds: 30 };

test("a breaker opens at the given failures, holds, and then lets one in", async (t) => {
  const it = await world(t, { breaker });
  t.is(await it.passes(2), 8);
  const jobs = await it.inFlight();
  await it.stage(["a", "a", "a", "b"]);
  await ended(it, jobs.slice(0, 2), false);
  await it.route();
  t.is((await it.partition("a")).breaker_reason, null);
  await it.stage("a");
  await ended(it, jobs.slice(2, 3), false);
  t.is(await it.passes(3), 1, "only b's");
  const { stopped_by, breaker_reason, breaker_until } = await it.partition("a");
  t.deepEqual([stopped_by, breaker_reason], [null, "3 failures within 60 s"]);
  const later = new Date(breaker_until.getTime() + 1000);
  t.is((await it.admit({ now: later })).admitted, 1, "after the cooldown, one");
});

test("failures further apart than the breaker's window do not add up", async (t) => {
  const it = await world(t, { breaker: { ...breaker, withinSeconds: 0.001 } });
  t.is(await it.passes(2), 8);
  for (const job of await it.inFlight()) {
    await ended(it, [job], false);
    await it.pool.query("select pg_sleep(0.005)");
    await it.route();
  }
  t.is((await it.partition("a")).breaker_reason, null);
});

test("a failed probe opens the breaker again at once", async (t) => {
  const it = await world(t, { breaker });
  await wasHeld(it, "a");
  t.is(await it.passes(3), 1);
  await ended(it, await it.inFlight(), false);
  t.is(await it.passes(3), 0);
  t.is((await it.partition("a")).breaker_reason, "a probe failed");
});

/** A cap of one and a breaker of three failures; two of a's jobs have failed, and its third is in flight. */
async function aboutToOpen(t: Parameters<typeof engine>[0]) {
  const it = await engine(t, {
    gates: [concurrency(1)],
    breaker: { failures: 3, withinSeconds: 60, cooldownSeconds: 60 },
  });
  await it.stage(["a", "a", "a"]);
  for (let failures = 0; failures < 2; failures++) {
    await it.passes();
    await ended(it, await it.inFlight("a"), false);
  }
  t.is(await it.passes(), 1);
  return it;
}

test("a breaker opens before the next job goes, though the last failure comes after a pass has routed", async (t) => {
  const it = await aboutToOpen(t);
  await it.stage(["a", "b"]);
  await it.route();
  await ended(it, await it.inFlight("a"), false);
  t.is((await it.admit()).admitted, 1, "b's goes in the same pass");
  t.deepEqual(await it.inFlight("a"), []);
  t.is(await it.passes(3), 0);
  t.is((await it.partition("a")).breaker_reason, "3 failures within 60 s");
});

test("a breaker opens before the next job goes, though the last failure comes while a pass routes", async (t) => {
  const it = await aboutToOpen(t);
  await it.stage(["a", "b"]);
  t.is(await it.passes(), 1, "a waits for its slot");
  const [router, other] = [await it.session(), await it.session()];
  // it has read which arrivals there are, and waits for a limiter that one of them changes; on a busy machine longer than it would
  await it.pool.query("alter function dispatch_policy_internal._route_batch set lock_timeout = 0");
  await it.stage("b", { gates: [concurrency(2)] });
  await other.query("begin");
  await it.table("limiters", other).lock({ scope_key: "b" });
  const routing = it.route(router);
  await it.waitsForLock(router);
  await ended(it, await it.inFlight("a"), false);
  await other.query("commit");
  await routing;
  const { id } = await it.limiter("concurrency", "a");
  t.is(await it.table("freed").count({ limiter_id: id }), 1, "the room was told of");
  await it.admit();
  t.deepEqual(await it.inFlight("a"), []);
  await it.passes(3);
  t.deepEqual(await it.inFlight("a"), []);
  t.is((await it.partition("a")).breaker_reason, "3 failures within 60 s");
});
