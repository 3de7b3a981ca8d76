// A bounded backlog, and jobs that are not worth waiting.
import { EventEmitter } from "node:events";
import test from "ava";
import type { WorkerEvents } from "graphile-worker";
import {
  addPolicyJob,
  addPolicyJobs,
  BacklogFullError,
  concurrency,
  definePolicy,
  type PolicyEventMap,
  policyEvents,
  throttle,
} from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, policyOf, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const LONG_AGO = new Date("2020-01-01");

const keysOf = async (it: Scenario, where = "true") =>
  (
    await it.rows(
      `select partition, payload ->> 'n' as n from dispatch_policy.staged_jobs where ${where} order by id`,
    )
  ).map(({ partition, n }) => (n === null ? partition : `${partition}${n}`));

const droppedOf = async (it: Scenario, partition: string) => {
  const [row] = await it.rows(
    "select dropped_total::int as n from dispatch_policy.partitions where partition = $1",
    [partition],
  );
  return row?.n;
};

/** `add(it, "a", 1, 2)`: jobs 1 and 2 in partition a, in one call. */
const add = (it: Scenario, key: string, ...ns: number[]) =>
  it.utils.addJobs(ns.map((n) => ({ identifier: it.policy, payload: { key, n } })) as never);

for (const via of ["utils", "sql"] as const) {
  test(`a full partition takes no more, and the call leaves nothing behind (${via})`, async (t) => {
    const own =
      via === "utils"
        ? policyOf("p", { maxPending: { partition: 3 } })
        : definePolicy("p", { partitionBy: "key", maxPending: { partition: 3 } });
    const it = await scenario(t, own);
    const one = async (key: string) =>
      via === "utils"
        ? it.utils.addJob("p", { key } as never)
        : it.rows("select * from dispatch_policy.add_job('p', $1::json)", [JSON.stringify({ key })]);
    for (const key of ["a", "a", "b"]) await one(key);
    if (via === "utils") {
      const error = await t.throwsAsync(it.stage("2@b 2@a"), { instanceOf: BacklogFullError });
      t.is(
        error.message,
        "the backlog of policy 'p' is full: 1 of these jobs do not fit into partition 'a': 2 of at most 3 are pending",
      );
      t.is(error.code, "backlog_full");
    }
    await one("a");
    await t.throwsAsync(one("a"), via === "utils" ? { code: "backlog_full" } : { code: "DPFUL" });
    t.deepEqual(await keysOf(it), ["a", "a", "b", "a"]);

    await it.tick();
    await one("a");
    t.is(await it.staged("a"), 1, "what was admitted makes room");
  });
}

test("in the caller's transaction: a savepoint keeps the rest", async (t) => {
  const policy = policyOf("p", { maxPending: { partition: 1 } });
  const it = await scenario(t, policy);
  const client = await it.pool.connect();
  try {
    await client.query("begin");
    await addPolicyJob(client, policy, { key: "a" });
    await client.query("savepoint one_more");
    await t.throwsAsync(addPolicyJob(client, policy, { key: "a" }), { instanceOf: BacklogFullError });
    await client.query("rollback to one_more");
    await addPolicyJob(client, policy, { key: "b" });
    await client.query("commit");
  } finally {
    client.release();
  }
  t.deepEqual(await keysOf(it), ["a", "b"]);
});

test("the newest are dropped: said to the caller, counted, told", async (t) => {
  const it = await scenario(t, { maxPending: { partition: 3, whenFull: "drop_newest" } });
  await add(it, "a", 1, 2);
  const jobs = await add(it, "a", 3, 4, 5);
  t.deepEqual(
    jobs.map((job) => job.staged && job.dropped),
    [undefined, true, true],
  );
  t.like(jobs[2], { id: null, task_identifier: "p", partition: "a", policy: "p" });
  const single = await it.utils.addJob("p", { key: "a" } as never);
  t.true(single.staged && single.dropped);
  t.deepEqual(await keysOf(it), ["a1", "a2", "a3"]);

  t.is((await it.tick()).dropped, 3);
  t.is(await droppedOf(it, "a"), 3);
  t.is((await it.tick()).dropped, 0, "told once");
});

test("the oldest are dropped, those of the call as well where it brings too many", async (t) => {
  const it = await scenario(t, { maxPending: { partition: 3, whenFull: "drop_oldest" } });
  await add(it, "a", 1, 2, 3);
  await add(it, "b", 1);
  await add(it, "a", 4);
  t.deepEqual(await keysOf(it, "partition = 'a'"), ["a2", "a3", "a4"]);
  await add(it, "a", 5, 6, 7, 8, 9);
  t.deepEqual(await keysOf(it, "partition = 'a'"), ["a7", "a8", "a9"]);
  t.deepEqual(await keysOf(it, "partition = 'b'"), ["b1"]);
  t.is((await it.tick()).dropped, 6);
  t.is(await droppedOf(it, "a"), 6);
});

for (const whenFull of ["reject", "drop_newest", "drop_oldest"] as const) {
  test(`a bound on the whole policy: ${whenFull}`, async (t) => {
    const it = await scenario(t, {
      gates: [concurrency<Ctx>({ max: 1 })],
      maxPending: { policy: 4, whenFull },
    });
    await add(it, "a", 1, 2);
    await add(it, "b", 1, 2);
    const more = add(it, "c", 1);
    if (whenFull === "reject")
      await t.throwsAsync(more, { message: /\d+ of these jobs do not fit.*: 4 of at most 4 are pending/ });
    else await more;
    t.deepEqual(
      await keysOf(it),
      {
        reject: ["a1", "a2", "b1", "b2"],
        drop_newest: ["a1", "a2", "b1", "b2"],
        drop_oldest: ["a2", "b1", "b2", "c1"],
      }[whenFull],
    );

    await it.tick();
    await add(it, "a", 3);
    t.is((await it.tick()).admitted, 0, "one at a time each");
    const free = 4 - (await it.staged());
    await add(it, "d", ...Array.from({ length: free }, (_, n) => n));
    t.is(await it.staged(), 4);
    if (whenFull === "reject") await t.throwsAsync(add(it, "e", 1));
    await it.rows("select dispatch_policy.remove(policy => 'p', partition => 'd')");
    await add(it, "e", 1);
    t.is((await it.utils.sweep()).repaired.pending, 0, "the count was right");
  });
}

test("a policy that gets a bound while jobs wait counts them", async (t) => {
  const it = await scenario(t, policyOf("p"));
  await add(it, "a", 1, 2, 3);
  const bounded = policyOf("p", { maxPending: { policy: 3 }, version: 1 });
  const other = await it.makeUtils([bounded]);
  await t.throwsAsync(other.addJob("p", { key: "a" } as never), { instanceOf: BacklogFullError });
});

test("a job whose key is staged takes that one's place", async (t) => {
  const it = await scenario(t, { maxPending: { partition: 1 } });
  const again = () => it.utils.addJob("p", { key: "a" } as never, { jobKey: "k" });
  await again();
  await again();
  t.is(await it.staged("a"), 1);
  await t.throwsAsync(it.utils.addJob("p", { key: "a" } as never, { jobKey: "other" }));
});

test("a retry and a parked job are never dropped", async (t) => {
  const it = await scenario(t, {
    maxPending: { partition: 1, whenFull: "drop_oldest" },
    backoff: () => "1 hour",
  });
  await it.stage("1@a");
  const { stop } = await it.worker({
    tasks: {
      p: () => {
        throw new Error("again");
      },
    },
  });
  await until(
    "it is parked",
    async () => (await it.rows("select from graphile_worker.jobs where run_at = 'infinity'")).length === 1,
  );
  await stop();
  await it.utils.addJob("p", { key: "a" } as never);
  t.is(await it.staged("a"), 2, "the parked one, and the new one");
  await it.utils.addJob("p", { key: "a" } as never);
  t.is(await it.staged("a"), 2);
});

test("busy: what the gates deny at the first look is dropped, what waits for its time is not", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 2 })], whenBusy: "skip" });
  await it.stage("5@a 1@b");
  await it.stage("1@a", {}, { runAt: it.at(3600) });
  t.like(await it.tick(), { admitted: 3, dropped: 3 });
  t.deepEqual(await keysOf(it), ["a"]);
  t.is(await droppedOf(it, "a"), 3);
  await it.stage("1@a");
  t.is((await it.tick(1)).dropped, 1);
  await it.finish(3);
  t.is((await it.tick(3601)).admitted, 1, "in its time");
});

test("busy: a long backlog is dropped in steps, one after the other", async (t) => {
  const gates = [concurrency<Ctx>({ name: "all", scope: "policy", max: 2 })];
  const it = await scenario(t, { gates, whenBusy: "skip" });
  await it.stage("2500@a");
  t.like(await it.tick(), { admitted: 2, dropped: 1000 });
  const second = await it.tick();
  t.like(second, { admitted: 0, dropped: 1000 });
  t.true(second.nextEligibleAt! <= it.at(1), "the next pass follows at once, though the cap of all is full");
  t.like(await it.tick(), { admitted: 0, dropped: 498 });
  t.like(await it.tick(), { dropped: 0, nextEligibleAt: null });
  t.is(await droppedOf(it, "a"), 2498);
});

test("busy: a paused partition's jobs wait, and so do those beyond a budget", async (t) => {
  const it = await scenario(t, {
    gates: [throttle<Ctx>({ rate: 1, per: "1 hour", burst: 10 })],
    tickAdmissionBudget: 1,
    whenBusy: "skip",
  });
  await it.stage("3@a");
  await it.utils.pause({ policy: "p", partition: "a" });
  t.is((await it.tick()).admitted, 0);
  await it.utils.resume({ policy: "p", partition: "a" });
  t.is((await it.tick()).admitted, 1);
  t.is(await it.staged(), 2);
  t.is((await it.tick()).admitted, 1);
});

const DELAY = { delay: "30 seconds" } as const;

for (const via of VIAS) {
  test(`scenario 38: a job that meets its gates busy is postponed, and one that comes when they have room goes (${via})`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })], whenBusy: DELAY }, { via });
    const [, second] = await it.stage("2@a");
    t.like(await it.tick(), { admitted: 1, dropped: 0, denied: { concurrency_full: 1 } });
    t.like(await it.tick(), { claimed: 1, admitted: 0, denied: {}, nextEligibleAt: it.at(30) });
    const rows = () => it.rows("select id, run_at, reason from dispatch_policy.staged_jobs order by id");
    t.deepEqual(await rows(), [{ id: second!.id, run_at: it.at(30), reason: "not_due" }]);
    t.like(await it.tick(10), { claimed: 0 });
    await it.finish(1);
    t.like(await it.tick(29.999), { claimed: 0, admitted: 0, nextEligibleAt: it.at(30) });
    const [third] = await it.stage("1@a");
    t.like(await it.tick(29.999), { admitted: 1 });
    t.deepEqual(
      (await it.inFlight()).map(({ staged_id }) => staged_id),
      [third!.id],
    );
    t.like(await it.tick(30), { admitted: 0 }, "the slot is taken: it is postponed again");
    t.deepEqual(await rows(), [{ id: second!.id, run_at: it.at(60), reason: "not_due" }]);
    await it.finish(1);
    await it.tick(59.999);
    t.like(await it.tick(60), { admitted: 1 });
    t.deepEqual(
      (await it.inFlight()).map(({ staged_id }) => staged_id),
      [second!.id],
    );
    t.like(await it.partition("a"), { staged: 0, dropped_total: "0" });
  });
}

for (const via of VIAS) {
  test(`scenario 39: jobs that were postponed together are due one after the other (${via})`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })], whenBusy: DELAY }, { via });
    const jobs = await it.stage("4@a");
    for (const [n, second] of [0, 30, 40, 50].entries()) {
      if (n > 0) t.like(await it.tick(second - 0.001), { claimed: 0 });
      t.like(await it.tick(second), { admitted: 1 });
      t.deepEqual(
        (await it.inFlight()).map(({ staged_id }) => staged_id),
        [jobs[n]!.id],
      );
      await it.tick(second + 1);
      await it.finish(1);
    }
    await it.rows("select dispatch_policy_internal._fold_activity(1000)");
    t.deepEqual(await it.rows("select sum(delayed)::int as delayed from dispatch_policy.minutes"), [
      { delayed: 3 },
    ]);
    t.deepEqual(await it.rows("select value from dispatch_policy.metrics() where name = 'delayed_total'"), [
      { value: 3 },
    ]);
  });
}

test("jobs of several partitions that one cap postpones are due one after the other, in steps", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ scope: "policy", max: 0 })],
    whenBusy: { delay: "1 second" },
  });
  await it.stage("1@a 1@b 6@c");
  await it.tick();
  t.deepEqual(
    (await it.rows("select run_at from dispatch_policy.staged_jobs order by id")).map(({ run_at }) => run_at),
    [1, 1, 1.25, 1.25, 1.5, 1.5, 1.75, 1.75].map((second) => it.at(second)),
  );
});

test("jobs that were postponed wait although a limit is raised, and an operator brings them back", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })], whenBusy: DELAY });
  await it.stage("3@a");
  await it.tickNow();
  await it.utils.setLimit({ policy: "p", gate: "concurrency", set: { max: 3 } });
  t.like(await it.tickNow(), { admitted: 0 });
  await it.rows(`select dispatch_policy.reschedule_jobs(array(
    select id from dispatch_policy.staged_jobs where policy = 'p' and reason = 'not_due' and job_id is null), now())`);
  t.like(await it.tickNow(), { admitted: 2 });
});

test("the database refuses a delay of less than a second as well", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })], whenBusy: DELAY });
  await t.throwsAsync(table(it.pool, "policies").set({ busy_delay: 0.999 }), { code: "23514" });
});

test("scenario 38: what is postponed and what waits: retries, pauses and workers' turns are no gates", async (t) => {
  const it = await scenario(t, {
    gates: [throttle<Ctx>({ rate: 1, per: "1 hour", burst: 2 })],
    tickAdmissionBudget: 1,
    whenBusy: DELAY,
    backoff: () => "10 seconds",
  });
  const later = async () =>
    Number(
      (
        await it.rows("select count(*) as n from dispatch_policy.staged_jobs where run_at >= $1", [it.at(30)])
      )[0].n,
    );
  await it.stage("3@a");
  await it.utils.pause({ policy: "p", partition: "a" });
  t.is((await it.tick()).admitted, 0);
  t.is(await later(), 0, "it is paused");
  await it.utils.resume({ policy: "p", partition: "a" });
  t.is((await it.tick()).admitted, 1);
  t.is(await later(), 0, "the budget is no gate");
  const hands = await it.hands();
  await hands.end(1, "badly");
  t.is((await it.tick(1)).admitted, 1);
  t.is(await later(), 1, "the bucket is empty");
  t.like(await it.tick(11), { admitted: 0, denied: { throttle_empty: 1 } });
  t.is(await later(), 1, "the retry waits for its token");
  t.like(await it.tick(12), { claimed: 0 }, "and is not looked at before there is one");
});

test("a backlog is postponed in steps", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 0 })], whenBusy: DELAY });
  await it.stage("1500@a");
  const due = () => table(it.pool, "staged_jobs").count({ due: true });
  await it.tick();
  t.is(await due(), 500);
  await it.tick();
  t.is(await due(), 0);
  t.like(await it.tick(), { denied: {}, nextEligibleAt: it.at(30) });
  t.like(await it.tick(1), { claimed: 0 });
});

test("a job that a cap over the policy postpones is looked at when its delay is over", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ scope: "policy", max: 1 })],
    whenBusy: DELAY,
  });
  const [, second] = await it.stage("1502@a");
  for (const admitted of [1, 0]) {
    const pass = await it.tick();
    t.like(pass, { admitted, denied: { concurrency_full: 1 } });
    t.not(pass.nextEligibleAt, null, "the next pass goes on with the rest");
  }
  t.like(await it.tick(), { denied: {}, nextEligibleAt: it.at(30) }, "the whole backlog is postponed");
  await it.finish(1);
  t.like(await it.tick(30), { admitted: 1 });
  t.is((await it.inFlight())[0]?.staged_id, second!.id);
});

test("jobs that come due beside dropped ones are found, although a cap over the policy is full", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ scope: "policy", max: 1 })],
    whenBusy: "skip",
  });
  await it.stage("1@a", {}, { runAt: it.at(20) });
  await it.stage("2@a");
  const next = async () => {
    const [row] = await it.rows("select * from dispatch_policy_internal._admit('p', null, 50, $1, false)", [
      it.at(0),
    ]);
    return row;
  };
  await it.rows("select dispatch_policy_internal._route('p', $1, 10000)", [it.at(0)]);
  t.like(await next(), { admitted: 1, saturated: null });
  t.like(await next(), { next_eligible_at: it.at(20) });
});

test("a job that was postponed expires, and its key finds it", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 0 })], whenBusy: DELAY });
  const add = (spec: object) => it.utils.addJob("p", { key: "a" } as never, { jobKey: "k", ...spec });
  const { id } = await add({ expiresAt: it.at(40) });
  await it.tick();
  await it.tick();
  t.is((await add({ jobKeyMode: "unsafe_dedupe" })).id, id);
  await it.tick(30);
  t.like(await it.tick(60), { dropped: 1 });
});

test("a tick loop tells of drops by an event", async (t) => {
  const it = await scenario(t, {
    maxPending: { partition: 1, whenFull: "drop_newest" },
    gates: [concurrency<Ctx>({ max: 0 })],
  });
  const told: PolicyEventMap["dispatchPolicy:drop"][] = [];
  const events: WorkerEvents = new EventEmitter();
  policyEvents(events).on("dispatchPolicy:drop", (event) => told.push(event));
  await it.worker({ tasks: { p: () => {} }, events });
  await it.stage("3@a");
  await until("it is told", () => told.length > 0);
  t.deepEqual(told[0], { policy: "p", partition: "a", reason: "max_pending", count: 2 });
});

test("two policies in one call: the full one refuses the whole call", async (t) => {
  const full = policyOf("full", { maxPending: { partition: 1 } });
  const open = policyOf("p");
  const it = await scenario(t, open, { others: [full] });
  await t.throwsAsync(
    addPolicyJobs(it.pool, [
      { policy: open, payload: { key: "a" } },
      { policy: full, payload: { key: "a" }, runAt: LONG_AGO },
      { policy: full, payload: { key: "a" } },
    ] as never),
    { instanceOf: BacklogFullError },
  );
  t.is(await it.staged(), 0);
});

for (const maxPending of [
  { partition: 1 },
  { policy: 1 },
  { partition: 1, whenFull: "drop_oldest" },
  { policy: 1, whenFull: "drop_oldest" },
] as const) {
  test(`unsafe_dedupe of an admitted job is no pending job: ${JSON.stringify(maxPending)}`, async (t) => {
    const it = await scenario(t, { maxPending });
    const again = { jobKey: "k", jobKeyMode: "unsafe_dedupe" } as const;
    await it.utils.addJob("p", { key: "a" } as never, { jobKey: "k" });
    await it.tickNow();
    for (let n = 0; n < 3; n++) await it.utils.addJob("p", { key: "a" } as never, again);
    t.is(await it.staged(), 0);
    await it.stage("1@a");
    t.not((await it.utils.addJob("p", { key: "a" } as never, again)).id, null);
    t.is(await it.staged(), 1);
    t.is((await it.utils.sweep()).repaired.pending, 0);
  });
}

test("the oldest are dropped beside one that is replaced", async (t) => {
  const it = await scenario(t, { maxPending: { partition: 3, whenFull: "drop_oldest" } });
  const add = (...keys: (string | undefined)[]) =>
    it.utils.addJobs(
      keys.map((jobKey) => ({
        identifier: "p",
        payload: { key: "k" },
        ...(jobKey ? { jobKey } : {}),
      })) as never,
    );
  await add("x", undefined, undefined);
  await add(undefined, "x");
  t.is(await it.staged(), 3);
  t.is((await it.rows("select from dispatch_policy.staged_jobs where job_key = 'x'")).length, 1);
});

test("a job whose key another policy's job takes is pending no more", async (t) => {
  const bound = { maxPending: { policy: 3 } };
  const it = await scenario(t, bound, { others: [policyOf("q", bound)] });
  for (const task of ["p", "q", "p", "q"])
    for (const jobKey of ["x", "y", "z"]) await it.utils.addJob(task, { key: "k" } as never, { jobKey });
  const fails = { instanceOf: BacklogFullError };
  await t.throwsAsync(it.utils.addJob("q", { key: "k" } as never), fails);
  for (let n = 0; n < 3; n++) await it.utils.addJob("p", { key: "k" } as never);
  await t.throwsAsync(it.utils.addJob("p", { key: "k" } as never), fails);
  t.is((await it.utils.sweep()).repaired.pending, 0);
});
