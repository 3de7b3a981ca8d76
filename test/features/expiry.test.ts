// Jobs that are worthless when they come late: expiresAt and expiresAfter.
import { EventEmitter } from "node:events";
import test from "ava";
import type { WorkerEvents } from "graphile-worker";
import { concurrency, definePolicy, type PolicyEventMap, policyEvents } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { payloadsInFlight } from "../helpers/native.ts";
import { type Ctx, policyOf, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { table, workerTable } from "../helpers/table.ts";

const LONG_AGO = new Date("2020-01-01");

/** `n` of the payloads of jobs that were admitted, in the order they were staged. */
const admitted = async (it: Scenario) => (await payloadsInFlight(it.pool)).map(({ n }) => n);

/** After how many seconds each staged job expires, from when it is due or was staged. */
const lasting = async (it: Scenario) =>
  (
    await it.rows(
      `select extract(epoch from expires_at - greatest(run_at, created_at))::float8 as seconds
       from dispatch_policy.staged_jobs order by id`,
    )
  ).map(({ seconds }) => (seconds === null ? null : Math.round(seconds)));

for (const via of VIAS) {
  test(`an expired job is dropped at its look, and the next one goes (${via})`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] }, { via });
    await it.stage("1@a", { n: 1 } as never);
    await it.stage("1@a", { n: 2 } as never, { expiresAfter: "1 minute" });
    await it.stage("1@a", { n: 3 } as never);
    t.like(await it.tick(), { admitted: 1, dropped: 0 });
    await it.finish(1);
    t.like(await it.tick(120), { admitted: 1, dropped: 1 });
    t.deepEqual(await admitted(it), [3]);
    t.like(await it.partition("a"), { dropped_total: "1", admitted_total: "2", staged: 0 });
    await it.finish(1);
    t.like(await it.tick(121), { claimed: 0, admitted: 0, dropped: 0 });
  });

  test(`a job goes up to the time at which it expires, and not at it (${via})`, async (t) => {
    const it = await scenario(t, {}, { via });
    await it.stage("1@a", {}, { expiresAt: it.at(60) });
    await it.stage("1@b", {}, { expiresAt: new Date(it.at(60).getTime() + 1) });
    t.like(await it.tick(60), { admitted: 1, dropped: 1 });
    t.deepEqual(await it.inFlightBy(), { b: 1 });
  });

  test(`a backlog that has expired is dropped in steps, and none of it goes (${via})`, async (t) => {
    const it = await scenario(t, { admissionBatchSize: 5 }, { via });
    await it.stage("2500@a", { n: 1 } as never, { expiresAfter: "1 minute" });
    await it.stage("2@a 1@b", { n: 2 } as never);
    t.like(await it.tick(120), { admitted: 1, dropped: 1000 }, "b is not in its way");
    t.like(await it.tick(120), { admitted: 0, dropped: 1000 });
    t.like(await it.tick(120), { admitted: 2, dropped: 500 });
    t.deepEqual(await admitted(it), [2, 2, 2]);
    t.like(await it.partition("a"), { dropped_total: "2500", staged: 0 });
    t.deepEqual((await it.utils.sweep()).repaired, {
      ...{ pools: 0, unlocked: 0, overdue: 0, jobs: 0, counters: 0, asleep: 0, blocked: 0, pending: 0 },
    });
  });
}

test("a pass drops some 1,000 jobs in all, and of each partition", async (t) => {
  const it = await scenario(t);
  await it.stage("1000@a 1000@b 1000@c 1@d", {}, { expiresAfter: "1 minute" });
  await it.stage("1@d 1@e");
  t.like(await it.tick(120), { admitted: 2, dropped: 751 });
  t.like(await it.tick(120), { admitted: 0, dropped: 1002 });
  t.like(await it.tick(120), { admitted: 0, dropped: 1002 });
  t.like(await it.tick(120), { admitted: 0, dropped: 246 });
  t.is(await it.staged(), 0);
});

test("the time counts from when a job is due, and at least from when it is added", async (t) => {
  const it = await scenario(t, { expiresAfter: "15 minutes" });
  await it.stage("1@a");
  await it.stage("1@a", {}, { runAt: LONG_AGO });
  await it.stage("1@a", {}, { wait: "2 hours" });
  await it.stage("1@a", {}, { runAt: new Date(Date.now() + 3_600_000), expiresAfter: "10 seconds" });
  await it.stage("1@a", {}, { expiresAfter: "500 ms", jobKey: "k" });
  await it.stage("1@a", {}, { jobKey: "k" });
  t.deepEqual(await lasting(it), [900, 900, 900, 10, 900]);
  const at = new Date("2040-01-01");
  await it.stage("1@a", {}, { expiresAt: at, jobKey: "k" });
  t.deepEqual((await it.rows("select expires_at from dispatch_policy.staged_jobs where job_key = 'k'"))[0], {
    expires_at: at,
  });
});

for (const [how, own] of [
  ["SQL works the key out", definePolicy("p", { partitionBy: "key", expiresAfter: "15 minutes" })],
  ["JavaScript works it out", policyOf("p", { expiresAfter: "15 minutes" })],
] as const) {
  test(`jobs from SQL expire: ${how}`, async (t) => {
    const it = await scenario(t, own);
    await it.rows(`select dispatch_policy.add_job('p', '{"key": "a"}')`);
    await it.rows(
      `select dispatch_policy.add_job('p', '{"key": "a"}', expires_at => now() + interval '1 minute')`,
    );
    await it.rows(
      `select dispatch_policy.add_jobs(array[
         row('p', '{"key": "a"}', null, null, null, null, null, null),
         row('p', '{"key": "a"}', null, now() + interval '1 hour', null, null, null, null)
       ]::graphile_worker.job_spec[], expires_at => array[null, now() + interval '2 hours'])`,
    );
    t.deepEqual(await lasting(it), [900, 60, 900, 3600]);
    t.like(await it.tick(600), { admitted: 2, dropped: 1 });
  });
}

test("a process without the policy stages jobs that expire", async (t) => {
  const it = await scenario(t, { expiresAfter: "15 minutes" });
  const other = await it.makeUtils([]);
  await other.addJob("p", { key: "a" } as never);
  await other.addJob("p", { key: "a" } as never, { expiresAfter: "1 minute" });
  t.deepEqual(await lasting(it), [900, 60]);
});

test("a sweep drops what has expired where no pass looks", async (t) => {
  const it = await scenario(t, { maxPending: { policy: 3 } });
  await it.utils.pause({ policy: "p", partition: "a" });
  await it.stage("2@a", {}, { expiresAt: LONG_AGO });
  await it.stage("1@a");
  t.like(await it.tick(), { admitted: 0, dropped: 0 });
  t.is(await it.staged(), 3);
  await it.utils.sweep();
  t.is(await it.staged(), 1);
  t.like(await it.tick(), { admitted: 0, dropped: 2 });
  t.like(await it.partition("a"), { dropped_total: "2", staged: 1 });
  await it.stage("2@b");
  await t.throwsAsync(it.stage("1@b"), { code: "backlog_full" });
  t.is((await it.utils.sweep()).repaired.pending, 0);
});

test("a sweep drops an expired job whose partition nobody works out", async (t) => {
  const it = await scenario(t, policyOf("p"));
  await it.rows(`select dispatch_policy.add_job('p', '{"key": "a"}', expires_at => now())`);
  await it.utils.sweep();
  t.is(await it.staged(), 0);
  t.deepEqual(await table(it.pool, "keyless_jobs").all(), []);
  t.like(await it.tick(), { admitted: 0, dropped: 1 });
});

test("a job that has started once does not expire", async (t) => {
  const it = await scenario(t, { expiresAfter: "1 minute", backoff: () => "10 minutes" });
  const hands = await it.hands();
  await it.stage("1@a");
  await it.tick();
  await hands.end(1, "badly");
  await until("it is staged again", async () => (await it.staged()) === 1);
  t.deepEqual(await lasting(it), [null]);
  t.like(await it.tick(1200), { admitted: 1, dropped: 0 });
});

test("a forced admission does not admit what has expired", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 0 })] });
  await it.stage("1@a", { n: 1 } as never, { expiresAt: LONG_AGO });
  await it.stage("1@a", { n: 2 } as never);
  t.like(await it.utils.admit({ policy: "p", count: 5 }), { changed: 1 });
  t.deepEqual(await admitted(it), [2]);
  t.like(await it.tick(), { admitted: 0, dropped: 1 });
});

test("a job that was locked while the pass looked is not admitted late", async (t) => {
  const it = await scenario(t);
  await it.stage("1@a", {}, { expiresAt: LONG_AGO });
  await it.rows("select dispatch_policy_internal._route('p', now(), 100)");
  const [row] = await inside(
    it.pool,
    `select cardinality(dispatch_policy_internal._add_admitted(array(
       select c from dispatch_policy_internal._first_due(array(select id from dispatch_policy.partitions), 9, null) c
     ), now())) as jobs`,
  );
  t.is(row.jobs, 0);
  t.is(await it.staged(), 1);
});

test("with unsafe_dedupe, an expired job keeps no new one out", async (t) => {
  const it = await scenario(t, { maxPending: { partition: 1 }, gates: [concurrency<Ctx>({ max: 0 })] });
  const add = (expiresAt: Date) =>
    it.utils.addJob("p", { key: "a" } as never, { jobKey: "k", jobKeyMode: "unsafe_dedupe", expiresAt });
  const later = new Date("2040-01-01");
  const [first, second, third] = [await add(LONG_AGO), await add(later), await add(LONG_AGO)];
  t.not(second.id, first.id);
  t.is(third.id, second.id);
  t.deepEqual(await it.rows("select id, expires_at from dispatch_policy.staged_jobs"), [
    { id: second.id, expires_at: later },
  ]);
  t.like(await it.tick(), { dropped: 1 });
});

test("with unsafe_dedupe, an expired job keeps none out of a policy that is off", async (t) => {
  const it = await scenario(t);
  const add = (n: number, expiresAt?: Date) =>
    it.utils.addJob("p", { key: "a", n } as never, { jobKey: "k", jobKeyMode: "unsafe_dedupe", expiresAt });
  await add(1, LONG_AGO);
  await it.utils.disable({ policy: "p" });
  await add(2);
  await it.utils.sweep();
  t.deepEqual(
    (await workerTable(it.pool).all()).map(({ payload }) => payload.n),
    [2],
  );
  t.is(await it.staged(), 0);
});

test("adopted jobs get the policy's time", async (t) => {
  const it = await scenario(t, definePolicy("p", { partitionBy: "key", expiresAfter: "15 minutes" }));
  await it.rows(`select graphile_worker.add_job('p', '{"key": "a"}', run_at => now() + interval '1 hour')`);
  await it.utils.adopt({ task: "p" });
  t.deepEqual(await lasting(it), [900]);
});

test("a tick loop tells of expired jobs by an event, and they are counted", async (t) => {
  const it = await scenario(t);
  const told: PolicyEventMap["dispatchPolicy:expire"][] = [];
  const events: WorkerEvents = new EventEmitter();
  policyEvents(events).on("dispatchPolicy:expire", (event) => told.push(event));
  policyEvents(events).on("dispatchPolicy:drop", () => t.fail("they are told by the other event"));
  await it.worker({ tasks: { p: () => {} }, events });
  await it.stage("3@a", {}, { expiresAt: LONG_AGO });
  await until("it is told", () => told.length > 0);
  t.deepEqual(told, [{ policy: "p", partition: "a", count: 3 }]);
  await it.utils.sweep();
  t.deepEqual(
    await it.rows(
      "select sum(dropped)::int as dropped, sum(expired)::int as expired, sum(admitted)::int as admitted from dispatch_policy.minutes",
    ),
    [{ dropped: 3, expired: 3, admitted: 0 }],
  );
  t.deepEqual(await it.rows("select value from dispatch_policy.metrics() where name = 'expired_total'"), [
    { value: 3 },
  ]);
});

test("what cannot be a time is refused", async (t) => {
  const it = await scenario(t, { expiresAfter: "15 minutes" });
  const bad = (spec: object) => it.utils.addJob("p", { key: "a" } as never, spec as never);
  await t.throwsAsync(bad({ expiresAfter: "0 seconds" }), {
    message: /^a job: expiresAfter must be a duration .*, longer than 0, got "0 seconds"$/,
  });
  await t.throwsAsync(bad({ expiresAt: "soon" }), {
    message: /^a job: expiresAt must be a valid Date, got "soon"$/,
  });
  await t.throwsAsync(bad({ expiresAt: LONG_AGO, expiresAfter: "1 day" }), {
    message:
      'a job: expiresAt and expiresAfter both say when it expires, leave one out; got expiresAfter "1 day"',
  });
  t.throws(() => policyOf("p", { expiresAfter: 60_000 as never }), {
    message: /^policy "p": expiresAfter must be a duration .*, longer than 0, got 60000$/,
  });
  const plain =
    /a job of other: it expires at .*, expected no such time: its task has no policy, and Graphile Worker's own jobs do not expire$/;
  await t.throwsAsync(it.utils.addJob("other", {}, { expiresAfter: "1 day" }), { message: plain });
  await t.throwsAsync(it.rows("select dispatch_policy.add_job('other', expires_at => now())"), {
    message: plain,
    code: "DPARG",
  });
  await t.throwsAsync(
    it.rows("select dispatch_policy.add_jobs('{}'::graphile_worker.job_spec[], expires_at => array[now()])"),
    {
      message: "dispatch_policy: expires_at has 1 entries, specs has 0; expected one time (or null) per job",
      code: "DPARG",
    },
  );
  t.is(await it.staged(), 0);
});
