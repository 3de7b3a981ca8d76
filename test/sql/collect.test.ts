// What sweeps forget: partitions long unused, and limiters that no partition uses.
import test from "ava";
import { makeEngine } from "../../src/db/engine.ts";
import { adaptive, concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";

const DAY_MS = 86_400_000;

interface Collected {
  readonly partitions: number;
  readonly limiters: number;
}

/** Two days later, when what was unused for one is collected. */
async function collect(it: Engine, now = new Date(Date.now() + 2 * DAY_MS)): Promise<Collected> {
  const partitions = await it.number("select dispatch_policy_internal._collect_partitions($1, '1 day')", [
    now,
  ]);
  const limiters = await it.number("select dispatch_policy_internal._collect_limiters($1, '1 day')", [now]);
  return { partitions, limiters };
}

async function finishAll(it: Engine): Promise<void> {
  await it.finish(await it.inFlight());
  await it.passes(2);
}

const byFirstLetter = { name: "host", scope: (partition: string) => partition.slice(0, 1) };

test("a partition goes with its own limiters, and comes back with no more than its bucket holds", async (t) => {
  const it = await engine(t, { gates: [throttle(2, { per: 3600 })] });
  await it.stage(["a", "a"]);
  t.is(await it.passes(2), 2);
  await finishAll(it);
  t.deepEqual(await collect(it, new Date()), { partitions: 0, limiters: 0 }, "used just now");
  t.deepEqual(await collect(it), { partitions: 1, limiters: 0 });
  t.is(await it.limiter("throttle"), undefined);

  await it.stage(["a", "a", "a"]);
  t.is(await it.passes(2), 2);
});

test("a partition stays whose bucket is not full, or that has a job in flight", async (t) => {
  const it = await engine(t, { gates: [throttle(1, { per: (10 * DAY_MS) / 1000 }), concurrency(1)] });
  await it.stage("a");
  t.is(await it.passes(), 1);
  t.deepEqual(await collect(it), { partitions: 0, limiters: 0 });
  await finishAll(it);
  t.deepEqual(await collect(it), { partitions: 0, limiters: 0 });
  t.deepEqual(await collect(it, new Date(Date.now() + 20 * DAY_MS)), { partitions: 1, limiters: 0 });
});

test("a bucket stays that has less than a limit in force would give it anew", async (t) => {
  const it = await engine(t, { gates: [throttle(1, { per: (1000 * DAY_MS) / 1000 })] });
  await it.pool.query("select dispatch_policy.set_limit('p', 'throttle', $1, key => 'a')", [{ rate: 10 }]);
  await it.stage("a");
  t.is(await it.passes(), 1);
  await finishAll(it);
  t.deepEqual(await collect(it), { partitions: 0, limiters: 0 });
  await it.pool.query("select dispatch_policy.clear_limit('p', 'throttle', 'a')");
  t.deepEqual(await collect(it), { partitions: 1, limiters: 0 });
});

test("a partition stays that an operator stopped", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage("a");
  await it.passes();
  await finishAll(it);
  await it.pool.query("select dispatch_policy.pause(policy => 'p', partition => 'a', reason => 'test')");
  await it.passes();
  t.deepEqual(await collect(it), { partitions: 0, limiters: 0 });
});

test("a limiter that partitions share goes with the last of them", async (t) => {
  const it = await engine(t, { gates: [concurrency(2, byFirstLetter)] });
  await it.stage(["a1", "b1"]);
  await it.stage("a2", { runAt: new Date(Date.now() + 3 * DAY_MS) });
  t.is(await it.passes(), 2);
  await finishAll(it);
  t.deepEqual(await collect(it), { partitions: 2, limiters: 1 });
  t.is(await it.limiter("host", "b"), undefined);
  t.truthy(await it.limiter("host", "a"));
});

test("a limiter goes that its partition uses no more, once nothing is in flight under it", async (t) => {
  const dropped = concurrency(1, { name: "dropped" });
  const kept = concurrency(2, { name: "kept" });
  const it = await engine(t, { gates: [dropped, kept] });
  await it.stage("a");
  t.is(await it.passes(), 1);
  await it.stage("a", { gates: [kept] });
  t.is(await it.passes(), 1);
  t.deepEqual(await collect(it, new Date()), { partitions: 0, limiters: 0 });
  await finishAll(it);
  t.deepEqual(await collect(it, new Date()), { partitions: 0, limiters: 1 });
  t.is(await it.limiter("dropped"), undefined);
  t.truthy(await it.limiter("kept"));
});

test("a bucket stays until it is full, and as long as an unused partition", async (t) => {
  const it = await engine(t, { gates: [throttle(1, { per: 3600, ...byFirstLetter })] });
  await it.stage("a");
  t.is(await it.passes(), 1);
  await finishAll(it);
  await it.stage("a", { gates: [] });
  t.is(await it.passes(), 1);
  await finishAll(it);
  t.deepEqual(await collect(it, new Date()), { partitions: 0, limiters: 0 });
  t.deepEqual(await collect(it, new Date(Date.now() + 3_700_000)), { partitions: 0, limiters: 0 }, "full");
  t.deepEqual(await collect(it), { partitions: 2, limiters: 1 }, "one of them its lane");
});

test("a bucket that code outside jobs takes from stays, and its partition with it", async (t) => {
  const it = await engine(t, { gates: [throttle(1)] });
  await it.stage("a");
  await it.passes();
  await finishAll(it);
  const now = new Date(Date.now() + 2 * DAY_MS);
  const takenAt = new Date(now.getTime() - 3_600_000);
  const taken = "select taken from dispatch_policy.take('p', 'throttle', 'a', now => $1)";
  t.true((await it.pool.query(taken, [takenAt])).rows[0].taken);
  t.deepEqual(await collect(it, now), { partitions: 0, limiters: 0 });
});

test("a limiter over all of a policy stays without partitions, until the policy has no such gate", async (t) => {
  const it = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await it.stage("a");
  await it.passes();
  await finishAll(it);
  t.deepEqual(await collect(it), { partitions: 1, limiters: 0 });
  await it.table("policies").set({ definition: (its) => `jsonb_set(${its}, '{gates}', '[]')` });
  t.deepEqual(await collect(it), { partitions: 0, limiters: 1 });
});

test("what an adaptive limiter has learnt stays as long as a partition would", async (t) => {
  const it = await engine(t, { gates: [adaptive(4, byFirstLetter)] });
  await it.stage("a");
  t.is(await it.passes(), 1);
  const [job = ""] = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  await it.release([{ job, ok: false, lagMs: 1 }]);
  t.is((await it.limiter("host")).current_max, 2);
  await it.stage("a", { gates: [] });
  await it.passes();
  t.deepEqual(await collect(it, new Date()), { partitions: 0, limiters: 0 });
  t.is((await collect(it)).limiters, 1);
});

test("a freed row goes with its limiter", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage("a");
  await it.route();
  await it.stage("a", { gates: [] });
  await it.route();
  const { policy_id, id: limiter_id } = await it.limiter("concurrency");
  await it.table("freed").add({ policy_id, limiter_id });
  t.deepEqual(await collect(it, new Date()), { partitions: 0, limiters: 1 });
  t.is(await it.table("freed").count(), 0);
});

test("overrides go a day after they were over, not those in force or to come", async (t) => {
  const it = await engine(t, { gates: [throttle(2), concurrency(1)] });
  const set = (gate: string, numbers: object, more = "") =>
    it.pool.query(`select dispatch_policy.set_limit('p', $1, $2 ${more})`, [gate, JSON.stringify(numbers)]);
  await set("throttle", { rate: 1 });
  await set("throttle", { rate: 3 });
  await set("concurrency", { max: 1 }, ", until => now() + interval '1 hour'");
  const collected = (days: number) =>
    it.number("select dispatch_policy_internal._collect_overrides($1)", [
      new Date(Date.now() + days * DAY_MS),
    ]);
  t.is(await collected(0.9), 0);
  t.is(await collected(1.02), 1, "replaced");
  t.is(await collected(2), 1, "ended by itself");
  t.is(await collected(20), 0);
  t.is(await it.number("select count(*)::int from dispatch_policy.overrides"), 1);
});

test("audit rows go by age, oldest first and 10,000 a call", async (t) => {
  const it = await engine(t, { gates: [] });
  const add = (place: string, count: number) => {
    const at = () => `now() - interval '90 days' + ${place} * interval '1 hour'`;
    return it.table("audit").add({ at, verb: "pause", reason: () => place, matched: 1, changed: 1 }, count);
  };
  await add("-n", 10_001);
  await add("n", 1000);
  const collect = () => makeEngine("dispatch_policy").collectOld(it.pool, "audit", 90 * DAY_MS);
  const oldest = () => it.number("select min(reason::int) from dispatch_policy.audit");
  t.is(await collect(), 10_000);
  t.is(await oldest(), -1);
  t.is(await collect(), 1);
  t.is(await collect(), 0, "none of the others is old enough");
  t.is(await oldest(), 1);
});

test("two sweeps at once do not wait for each other over audit rows", async (t) => {
  const it = await engine(t, { gates: [] });
  const at = () => "now() - interval '91 days'";
  await it.table("audit").add({ at, verb: "pause", matched: 1, changed: 1 }, 3);
  const first = await it.session();
  await first.query("begin");
  const { collectOld } = makeEngine("dispatch_policy");
  t.is(await collectOld(first, "audit", 90 * DAY_MS), 3);
  t.is(await collectOld(it.pool, "audit", 90 * DAY_MS), 0);
  await first.query("commit");
  t.is(await it.number("select count(*)::int from dispatch_policy.audit"), 0);
});

test("an override that is over stays until every bucket of its gate was looked at since", async (t) => {
  const it = await engine(t, { gates: [throttle(7, { per: (7 * DAY_MS) / 1000 })] });
  await it.stage(Array.from({ length: 7 }, () => "a"));
  t.is(await it.passes(3), 7);
  const from = new Date();
  const until = new Date(from.getTime() + 5 * DAY_MS);
  await it.pool.query(
    `select dispatch_policy.set_limit('p', 'throttle', '{"rate": 0}', "from" => $1, until => $2)`,
    [from, until],
  );
  const later = new Date(from.getTime() + 7 * DAY_MS);
  t.is(await it.number("select dispatch_policy_internal._collect_overrides($1)", [later]), 0);
  await it.stage(Array.from({ length: 7 }, () => "a"));
  await it.route();
  t.is((await it.admit({ now: later })).admitted, 2, "two days at one a day");
  t.is(await it.number("select dispatch_policy_internal._collect_overrides($1)", [later]), 1);
});

test("a bucket that an override kept from filling is not full", async (t) => {
  const it = await engine(t, { gates: [throttle(2, { per: 3600 })] });
  await it.stage(["a", "a"]);
  t.is(await it.passes(2), 2);
  await finishAll(it);
  const soon = new Date(Date.now() + 1000);
  await it.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"rate": 0}', "from" => $1)`, [
    soon,
  ]);
  t.deepEqual(await collect(it), { partitions: 0, limiters: 0 });
});
