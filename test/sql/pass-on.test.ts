// A release passes its slots on to the next jobs that wait for them, in its own transaction.
import test from "ava";
import { makeEngine, type Queryable } from "../../src/db/engine.ts";
import { flush } from "../../src/run/flush.ts";
import type { Unreleased } from "../../src/run/unreleased.ts";
import { adaptive, concurrency, Engine, type EngineOptions, engine, throttle } from "../helpers/engine.ts";
import { silent } from "../helpers/silent.ts";
import { durations, workerTable } from "../helpers/table.ts";

/** Completes and releases these jobs as a worker pool does, and says what went in their place. */
async function passOn(it: Engine, jobs: readonly string[], as: Queryable = it.pool) {
  await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  const ended = jobs.map((job) => ({ job, admission: null, ok: true, lagMs: 1, attempt: null, retry: null }));
  const { rows } = await as.query(
    "select left_ids, may_end, passed_on from dispatch_policy_internal._release($1, null, true)",
    [JSON.stringify(ended)],
  );
  return rows[0] as { left_ids: string[]; may_end: number | null; passed_on: object[] | null };
}

const freed = (it: Engine) => it.table("freed").count();

/** One job of `a` runs at its cap, and one more waits there. */
async function waiting(t: Parameters<typeof engine>[0], options: Partial<EngineOptions> = {}) {
  const it = await engine(t, { gates: [concurrency(1)], ...options });
  await it.waitsLong();
  await it.stage(["a", "a"]);
  await it.passes(2);
  const [running] = await it.inFlight("a");
  return { it, running: running! };
}

test("the next job of the partition goes with the release, and nobody is told", async (t) => {
  const { it, running } = await waiting(t);
  const handed = await passOn(it, [running]);
  t.deepEqual(handed, { left_ids: [], may_end: null, passed_on: [{ policy: "p", jobs: 1 }] });
  t.is((await it.inFlight("a")).length, 1);
  t.not((await it.inFlight("a"))[0], running);
  t.is((await it.limiter("concurrency", "a")).in_flight, 1);
  t.is(await freed(it), 0);
  t.is(await it.passes(2), 0);
});

test("several slots of several partitions go in one release, each to its own partition", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  await it.stage(["a", "a", "a", "a", "b", "b", "b"]);
  await it.passes(2);
  const handed = await passOn(it, [...(await it.inFlight("a")), (await it.inFlight("b"))[0]!]);
  t.deepEqual(handed.passed_on, [{ policy: "p", jobs: 3 }]);
  t.is((await it.inFlight("a")).length, 2);
  t.is((await it.inFlight("b")).length, 2);
  t.is(await it.passes(2), 0);
});

test("a slot of a wider scope goes to its line, and the partition's own slot with it", async (t) => {
  const all = concurrency(2, { name: "all", scope: "policy" });
  const it = await engine(t, { gates: [concurrency(1), all] });
  await it.stage(["a", "a", "b", "c"]);
  await it.passes(3);
  const [running] = await it.inFlight("a");
  const passed = { left_ids: [], may_end: null, passed_on: [{ policy: "p", jobs: 1 }] };
  t.deepEqual(await passOn(it, [running!]), passed);
  t.deepEqual(await it.inFlight("a"), []);
  t.is((await it.inFlight("c")).length, 1, "it had waited, and nothing of it had gone");
  t.is((await it.partition("a")).denied_reason, "concurrency_full");
  t.is(await freed(it), 0);
  t.is(await it.passes(2), 0);
});

test("what the next in line cannot use goes to who waits behind it, with the next pass", async (t) => {
  const all = concurrency(1, { name: "all", scope: "policy" });
  const it = await engine(t, { gates: [throttle(1, { per: 1e6 }), all] });
  await it.waitsLong();
  await it.stage(["a", "b", "c"]);
  await it.passes(2);
  const [running] = await it.inFlight("a");
  const { id } = await it.limiter("throttle", "b");
  await it.table("limiters").set({ tokens: 0 }, { id });
  t.deepEqual(await passOn(it, [running!]), { left_ids: [], may_end: 0, passed_on: null });
  t.is((await it.partition("b")).denied_reason, "throttle_empty");
  t.is(await freed(it), 1);
  t.is(await it.passes(), 1);
  t.is((await it.inFlight("c")).length, 1);
});

test("room that nobody has used yet is shared by all who wait, not used by the first", async (t) => {
  const it = await engine(t, { gates: [concurrency(3, { name: "all", scope: "policy" })] });
  await it.waitsLong();
  await it.stage(["x", "x", "x"]);
  await it.passes();
  await it.stage(["a", "a", "a", "b", "c"]);
  await it.passes(2);
  const [first, ...others] = await it.inFlight("x");
  t.is((await it.release(others)).length, 2);
  t.deepEqual((await passOn(it, [first!])).passed_on, [{ policy: "p", jobs: 3 }]);
  for (const key of ["a", "b", "c"]) t.is((await it.inFlight(key)).length, 1, key);
});

test("a partition that lacks the gate which stops another one keeps its next job", async (t) => {
  const all = concurrency(2, { name: "all", scope: "policy" });
  const added = concurrency(5, { name: "added", scope: "policy" });
  const it = await engine(t, { gates: [all, added] });
  await it.waitsLong();
  await it.stage(["x", "x"]);
  await it.passes();
  await it.stage(["p", "q", "q", "q"]);
  await it.passes(2);
  const running = await it.inFlight("x");
  const { id } = await it.limiter("added");
  await it.table("limiters").set({ in_flight: 7 }, { id });
  await it.table("partitions").set({ limiter_ids: (its) => `array_remove(${its}, ${id})` }, { key: "q" });
  t.deepEqual((await passOn(it, running)).passed_on, [{ policy: "p", jobs: 2 }]);
  t.is((await it.inFlight("q")).length, 2);
  t.like(await it.partition("q"), { denied_reason: "concurrency_full", staged: 1 });
  t.like(await it.partition("p"), { denied_reason: "concurrency_full", staged: 1 });
  await passOn(it, [(await it.inFlight("q"))[0]!]);
  await it.passes(2);
  t.is((await it.inFlight("q")).length, 2, "its last one went as well");
});

test("a job with a key is left to the next pass, and counted", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage("a");
  await it.passes();
  await it.stage("a", { jobKey: "k" });
  await it.passes(2);
  t.is((await passOn(it, await it.inFlight())).passed_on, null);
  t.is(await it.passes(), 1);
  const left = (await it.table("activity").all()).map(({ left_to_pass }) => left_to_pass);
  t.deepEqual(
    left.filter((one) => Object.keys(one).length > 0),
    [{ keyed: 1 }],
  );
});

test("who waits for tokens as well waits on", async (t) => {
  const { it, running } = await waiting(t, { gates: [concurrency(1), throttle(1, { per: 1e6 })] });
  t.deepEqual(await passOn(it, [running]), { left_ids: [], may_end: 0, passed_on: null });
  t.deepEqual(await it.inFlight(), []);
  t.is((await it.partition("a")).denied_reason, "throttle_empty");
  t.is(await it.passes(2), 0);
});

test("who waits for a time now has its loop told, whatever other shards wait for", async (t) => {
  const gates = [concurrency(1), throttle(1, { per: 1e6 })];
  const it = await engine(t, { gates, shardOf: (key) => key });
  await it.waitsLong();
  await it.stage(["a", "a"]);
  await it.stage("b", { runAt: new Date(Date.now() + 3_600_000) });
  await it.route();
  for (const shard of ["a", "b", "a"]) await it.admit({ shard });
  t.is((await passOn(it, await it.inFlight())).may_end, 0);
  t.is((await it.partition("a")).denied_reason, "throttle_empty");
});

test("a job that has expired is left to the next pass, which tells of it", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage("a");
  await it.passes();
  await it.stage("a", { expiresAt: new Date(Date.now() + 3_600_000) });
  await it.stage("a");
  await it.passes(2);
  await it
    .table("staged_jobs")
    .set({ expires_at: () => "now() - interval '1 second'" }, { expires_at: (its) => `${its} is not null` });
  t.deepEqual(await passOn(it, await it.inFlight()), { left_ids: [], may_end: 0, passed_on: null });
  t.is(await it.passes(), 1);
  const { rows } = await it.pool.query("select from dispatch_policy.staged_jobs");
  t.is(rows.length, 0);
});

test("a partition that is eligible goes with the next pass, before a slot is passed on", async (t) => {
  const { it, running } = await waiting(t);
  await it.stage("b");
  await it.route();
  t.is((await passOn(it, [running])).passed_on, null);
  t.is(await it.passes(), 2);
});

test("what stops the admission of the next job stops no release", async (t) => {
  const { it, running } = await waiting(t);
  await it.table("partitions").before("update", "raise 'no more'");
  t.deepEqual(await passOn(it, [running]), { left_ids: [], may_end: 0, passed_on: null });
  t.regex(JSON.stringify(await it.table("activity").all()), /"failed: P0001 in \w+ line \d+":1/);
  await it.table("activity").remove();
  t.deepEqual(await it.inFlight(), []);
  t.is((await it.limiter("concurrency", "a")).in_flight, 0);
  await t.throwsAsync(it.passes(), { message: /no more/ });
});

test("the loop of a shard is told of a time, also if another shard has an earlier one", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)], shardOf: (key) => key });
  await it.stage(["a", "a"]);
  await it.stage("a", { runAt: new Date(Date.now() + 7_200_000) });
  await it.stage("b", { runAt: new Date(Date.now() + 3_600_000) });
  await it.route();
  await it.admit({ shard: "a" });
  const handed = await passOn(it, await it.inFlight("a"));
  t.deepEqual(handed, { left_ids: [], may_end: 0, passed_on: [{ policy: "p", jobs: 1 }] });
});

test("a job that Graphile Worker refuses is left to the next pass, which tells of it", async (t) => {
  const { it, running } = await waiting(t);
  await workerTable(it.pool).before("insert", "raise 'no more'");
  t.deepEqual(await passOn(it, [running]), { left_ids: [], may_end: 0, passed_on: null });
  await it.route();
  t.is((await it.admit()).quarantined, 1);
});

test("after a slot was passed on the next release goes at once, whatever other policies wait for", async (t) => {
  const { it, running } = await waiting(t);
  const busy = new Engine(it.url, it.pool, { policy: "busy", gates: [], ahead: 40 });
  await busy.declare();
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('pool', 2, '{busy}', 'host', 1, '1 hour', '0')",
  );
  await busy.stage(Array(100).fill("a"));
  await busy.passes(2);
  const { ahead_limiter_id: id } = await it.table("policies").one({ name: "busy" });
  await it.table("limiters").set({ finished_per_second: 1e6, durations: durations({ busy: 0.5 }) }, { id });
  const jobs = [running, (await busy.inFlight()).find((job) => job !== running)!];
  await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  const group = jobs.map((job): Unreleased => {
    const ended = { admission: null, ok: true, lagMs: 1, attempt: null, retry: null };
    return { job: { job, ...ended }, policy: "p", tries: 0, left: 0, flushed: () => {} };
  });
  const withPgClient = ((callback: (client: Queryable) => unknown) => callback(it.pool)) as never;
  const own = { withPgClient, engine: makeEngine("dispatch_policy"), logger: silent };
  const flushed = await flush({ ...own, passesOn: () => true }, () => group);
  t.deepEqual(flushed.passedOn, [{ policy: "p", jobs: 1 }]);
  t.deepEqual(flushed.answers, [0]);
  t.true(flushed.wakes);
});

const LEFT: Record<
  string,
  { options?: Partial<EngineOptions>; before?: (it: Engine) => Promise<unknown>; after?: string }
> = {
  "it has arrivals": { before: (it) => it.stage("b") },
  "the policy has a budget": { options: { budget: 5 } },
  "the policy has a breaker": {
    options: { breaker: { failures: 9, withinSeconds: 60, cooldownSeconds: 60 } },
  },
  "the policy is fair by work": { options: { fairBy: "work" } },
  "the policy is paused": {
    before: (it) => it.pool.query("select dispatch_policy.pause(policy => 'p')"),
    after: "select dispatch_policy.resume(policy => 'p')",
  },
  "the partition is paused": {
    before: (it) => it.pool.query("select dispatch_policy.pause(policy => 'p', partition => 'a')"),
    after: "select dispatch_policy.resume(policy => 'p', partition => 'a')",
  },
  "the partition is held": {
    before: (it) =>
      it.pool.query(
        "select dispatch_policy.hold(policy => 'p', partition => 'a', until => now() + interval '1 hour')",
      ),
    after: "select dispatch_policy.resume(policy => 'p', partition => 'a')",
  },
};
for (const [why, { options, before, after }] of Object.entries(LEFT))
  test(`the slot is left to the next pass if ${why}`, async (t) => {
    const { it, running } = await waiting(t, options);
    await before?.(it);
    const { passed_on } = await passOn(it, [running]);
    t.is(passed_on, null);
    t.deepEqual(await it.inFlight("a"), []);
    if (after) await it.pool.query(after);
    await it.passes(2);
    t.is((await it.inFlight("a")).length, 1);
  });

for (const [what, name, where] of [
  ["its partition", "partitions", { key: "a" }],
  ["a throttle of its own", "limiters", { kind: "throttle" }],
] as const)
  test(`it waits for nobody who has ${what} locked`, async (t) => {
    const { it, running } = await waiting(t, { gates: [concurrency(1), throttle(100)] });
    const other = await it.session();
    await other.query("begin");
    await it.table(name, other).lock(where);
    t.deepEqual(await passOn(it, [running]), { left_ids: [], may_end: 0, passed_on: null });
    await other.query("rollback");
    t.is(await freed(it), 1);
    t.is(await it.passes(), 1);
  });

for (const [whose, gates] of [
  ["its policy", [concurrency(1)]],
  ["a policy with an adaptive gate", [concurrency(1), adaptive(10)]],
  ["another policy", null],
] as const)
  test(`a locked limiter of one job keeps no slot of ${whose} from who waits for it`, async (t) => {
    const it = await engine(t, { gates: gates ?? [concurrency(1)] });
    const its = gates ? it : new Engine(it.url, it.pool, { policy: "q", gates: [concurrency(1)] });
    if (!gates) await its.declare();
    await it.stage("a");
    await its.stage(["b", "b"]);
    await it.passes(2);
    await its.passes(2);
    const locking = await it.session();
    await locking.query("begin");
    await it.table("limiters", locking).lock({ id: (await it.limiter("concurrency", "a")).id });
    const [locked] = await it.inFlight("a");
    const [other] = await its.inFlight("b");
    const { left_ids, passed_on } = await passOn(it, [locked!, other!]);
    await locking.query("rollback");
    t.deepEqual([left_ids, passed_on], [[locked], [{ policy: its.policy, jobs: 1 }]]);
    t.is((await its.inFlight("b")).length, 1);
  });

test("a pass beside it skips the partition, and nothing goes past the cap", async (t) => {
  const { it, running } = await waiting(t);
  await it.stage(["a", "b"]);
  await it.passes(2);
  const releasing = await it.session();
  await releasing.query("begin");
  t.truthy((await passOn(it, [running], releasing)).passed_on);
  await it.stage("a");
  await it.passes();
  await releasing.query("commit");
  t.is(await it.passes(3), 0);
  t.is((await it.inFlight("a")).length, 1);
  t.is((await it.limiter("concurrency", "a")).in_flight, 1);
});

test("who pauses the partition meanwhile waits for the release, and the job that went runs", async (t) => {
  const { it, running } = await waiting(t);
  const releasing = await it.session();
  await releasing.query("begin");
  t.truthy((await passOn(it, [running], releasing)).passed_on);
  const pausing = await it.session();
  const paused = pausing.query("select dispatch_policy.pause(policy => 'p', partition => 'a')");
  await it.waitsForLock(pausing);
  await releasing.query("commit");
  await paused;
  t.is((await it.inFlight("a")).length, 1);
});

test("a key that another session adds at the moment postpones nobody for long: the job is left", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage("a");
  await it.passes();
  await it.stage("a", { jobKey: "k" });
  await it.passes(2);
  const adding = await it.session();
  await adding.query("begin");
  await adding.query("select graphile_worker.add_job('other', '{}', job_key => 'k')");
  const [running] = await it.inFlight();
  t.deepEqual(await passOn(it, [running!]), { left_ids: [], may_end: 0, passed_on: null });
  const refused = "select count(*)::int from dispatch_policy.staged_jobs where failures > 0";
  t.is(await it.number(refused), 0, "a pass decides for how long");
  await adding.query("rollback");
  t.is((await it.limiter("concurrency", "a")).in_flight, 0);
});
