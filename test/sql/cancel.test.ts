// Jobs that an operator cancels, wherever they are: `cancel`.
import test from "ava";
import { adaptive, concurrency, type Engine, engine, throttle, until } from "../helpers/engine.ts";
import { addPast, completeJob, failJob, fetchJob, startJob } from "../helpers/native.ts";
import { workerTable } from "../helpers/table.ts";

const GATES = { gates: [concurrency(1)] };

const cancel = async (it: Engine, rest: string) =>
  (await it.pool.query(`select * from dispatch_policy.cancel(${rest})`)).rows[0];

const errorOf = async (it: Engine, id: string) =>
  (
    await it.pool.query(
      "select last_error, attempts >= max_attempts as ended from graphile_worker.jobs where id = $1",
      [id],
    )
  ).rows[0];

/** The slots of jobs that a verb has ended. */
async function sweep(it: Engine): Promise<void> {
  const { rows } = await it.pool.query(
    "select * from dispatch_policy_internal._sweep_in_flight('1 second', true)",
  );
  const found = rows.filter(({ job_id }) => job_id !== null);
  await it.release(found.map(({ job_id, marked: _, ...rest }) => ({ job: job_id, ...rest })));
}

/** A job of partition a has failed, and waits parked. Another one is admitted, and two wait. */
async function world(t: Parameters<typeof engine>[0]) {
  const it = await engine(t, GATES);
  const [first] = await it.stage(["a", "a", "a", "a", "b", "b"]);
  await it.passes();
  const [parked] = (await it.inFlight("a")) as [string];
  await fetchJob(it, parked);
  await failJob(it, parked);
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25 };
  await it.release([{ job: parked, ok: false, attempt: 1, retry } as never]);
  await it.passes(2);
  const [admitted] = (await it.inFlight("a")) as [string];
  return { it, first: first!, parked, admitted };
}

/** A job of partition a runs. */
async function running(t: Parameters<typeof engine>[0]) {
  const it = await engine(t, GATES);
  await it.stage("a");
  await it.passes();
  const [id] = (await it.inFlight()) as [string];
  await fetchJob(it, id);
  return { it, id };
}

test("staged, parked and admitted jobs of a partition; others stay; a dry run only counts", async (t) => {
  const { it, parked, admitted } = await world(t);
  const before = await it.pool.query("select * from graphile_worker.jobs order by id");
  t.like(await cancel(it, "policy => 'p', partition => 'a', dry_run => true"), { matched: 4, changed: 0 });
  t.deepEqual((await it.pool.query("select * from graphile_worker.jobs order by id")).rows, before.rows);
  t.deepEqual([await it.staged("a"), await it.staged("b"), (await it.inFlight()).length], [3, 1, 2]);

  t.like(await cancel(it, "policy => 'p', partition => 'a', reason => 'left us', by => 'ana'"), {
    ...{ matched: 4, changed: 4 },
  });
  t.is(await it.staged("a"), 0);
  t.deepEqual(await errorOf(it, parked), { last_error: "cancelled by ana: left us (oops)", ended: true });
  t.deepEqual(await errorOf(it, admitted), { last_error: "cancelled by ana: left us", ended: true });
  t.like((await it.pool.query("select * from dispatch_policy.audit")).rows, [
    { verb: "cancel", policy: "p", partition: "a", reason: "left us", by: "ana", matched: 4, changed: 4 },
  ]);
  await sweep(it);
  t.deepEqual([(await it.inFlight("a")).length, (await it.inFlight("b")).length], [0, 1]);
  await it.route();
  t.is(await it.wrongCounters(), 0);
  t.like(await cancel(it, "policy => 'p', partition => 'a'"), { matched: 0, changed: 0 });
  t.is(await it.drain(), 2, "b's");
});

test("retry brings back those that Graphile Worker has kept", async (t) => {
  const { it } = await world(t);
  await cancel(it, "policy => 'p', partition => 'a', by => 'ana'");
  await sweep(it);
  const { rows } = await it.pool.query(
    "select * from dispatch_policy.retry(policy => 'p', error => 'cancelled by ana')",
  );
  t.deepEqual(rows, [{ matched: 2, changed: 2 }]);
  t.is(await it.staged(), 3, "and b's");
});

test("a job is found by its staged id, and by Graphile Worker's", async (t) => {
  const { it, first, parked, admitted } = await world(t);
  const { rows } = await it.pool.query("select id from dispatch_policy.staged_jobs where partition = 'b'");
  t.like(await cancel(it, `array[${parked}, ${rows[0].id}]`), { matched: 2, changed: 2 });
  t.like(await cancel(it, `array[${first}]`), { matched: 0 }, "it is parked no more");
  t.like(await cancel(it, `array[${admitted}]`), { matched: 1, changed: 1 });
  t.like(await cancel(it, "array[999]"), { matched: 0, changed: 0 });
  t.is(await it.staged(), 2);
});

test("by policy: also jobs that the router has not seen, and none of another policy", async (t) => {
  const it = await engine(t, GATES);
  await it.pool.query(
    `select dispatch_policy_internal._declare_policy(definition || '{"name": "q", "tasks": ["q"]}', 'q', '{}', now())
     from dispatch_policy.policies`,
  );
  await it.stage(["a", "b"]);
  await it.pool.query("select dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...it.batch(["a"], { task: "q" }), policy: "q" }]),
  ]);
  t.like(await cancel(it, "policy => 'p', partition => 'b'"), { matched: 1, changed: 1 });
  t.like(await cancel(it, "policy => 'p'"), { matched: 1, changed: 1 });
  t.is(await it.staged(), 1);
});

test("the next job of the key, in the row of an admitted one, is another job", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight()) as [string];
  t.is(await addPast(it, { key: "k" }), id);
  t.like(await cancel(it, "policy => 'p'"), { matched: 0, changed: 0 });
  t.deepEqual(await errorOf(it, id), { last_error: null, ended: false });
});

test("a job that has run for more than four hours is not failed beside its run", async (t) => {
  const { it, id } = await running(t);
  await workerTable(it.pool).set({ locked_at: () => "now() - interval '5 hours'" }, { id });
  t.like(await cancel(it, "policy => 'p'"), { matched: 1, changed: 1, running: 1, more: false });
  t.deepEqual(await errorOf(it, id), { last_error: null, ended: false });
  await sweep(it);
  t.is((await it.inFlight()).length, 1);
});

test("a job that runs gets a mark, and its worker pool a notification; a second cancel changes nothing", async (t) => {
  const { it, id } = await running(t);
  const listener = await it.session();
  const said: unknown[] = [];
  listener.on("notification", ({ payload }) => said.push(JSON.parse(payload!)));
  await listener.query("listen dispatch_policy");
  t.like(await cancel(it, "policy => 'p', dry_run => true"), {
    matched: 1,
    changed: 0,
    running: 1,
    more: false,
  });
  const mark = async () =>
    (await it.pool.query("select cancelled_by, cancel_reason from dispatch_policy.in_flight_jobs")).rows;
  t.deepEqual(await mark(), [{ cancelled_by: null, cancel_reason: null }]);
  const why = "reason => 'wrong batch', by => 'ana'";
  t.like(await cancel(it, `array[${id}], ${why}`), { matched: 1, changed: 1, running: 1, more: false });
  t.deepEqual(await mark(), [{ cancelled_by: "ana", cancel_reason: "wrong batch" }]);
  t.like(await cancel(it, "policy => 'p', by => 'bo'"), {
    matched: 1,
    changed: 0,
    running: 0,
    more: false,
  });
  t.deepEqual(await mark(), [{ cancelled_by: "ana", cancel_reason: "wrong batch" }]);
  const told = { schema: "dispatch_policy", policy: "p", cancelled: true };
  await until("both are told", () => said.length >= 2);
  t.deepEqual(
    said.filter((one) => (one as { cancelled?: true }).cancelled),
    [told, told],
  );
  const { rows } = await it.pool.query("select * from dispatch_policy_internal._cancelled_jobs()");
  t.like(rows, [{ job_id: id, by: "ana", reason: "wrong batch" }]);
  t.is(await it.wrongCounters(), 0);
});

for (const [what, end] of [
  ["whose process does not know yet", { retry: { attempt: 1, task: "p", after: 0, maxAttempts: 25 } }],
  ["whose retry goes past the gates", {}],
] as const) {
  test(`a cancelled job ${what} has failed for good, and its slot is back`, async (t) => {
    const { it, id } = await running(t);
    await cancel(it, "policy => 'p', by => 'ana'");
    await failJob(it, id);
    t.deepEqual(await it.release([{ job: id, ok: false, attempt: 1, ...end } as never]), [id]);
    t.deepEqual(await errorOf(it, id), { last_error: "cancelled by ana (oops)", ended: true });
    t.deepEqual([await it.staged(), (await it.inFlight()).length], [0, 0]);
    t.is(await it.wrongCounters(), 0);
  });
}

test("a cancelled job that fails is left for the next flush until Graphile Worker has recorded it", async (t) => {
  const { it, id } = await running(t);
  await cancel(it, "policy => 'p', by => 'ana'");
  const end = { job: id, ok: false, attempt: 1, retry: { attempt: 1, giveUp: true } };
  t.deepEqual(await it.release([end as never]), []);
  t.is((await it.inFlight()).length, 1);
  await failJob(it, id);
  t.deepEqual(await it.release([end as never]), [id]);
  t.true((await errorOf(it, id)).ended);
});

test("a cancelled job that succeeds has succeeded", async (t) => {
  const { it, id } = await running(t);
  await cancel(it, "policy => 'p'");
  await completeJob(it, id);
  t.deepEqual(await it.release([id]), [id]);
  t.deepEqual([await errorOf(it, id), (await it.inFlight()).length], [undefined, 0]);
});

test("a cancelled job whose process was killed before it was released ends with the sweep", async (t) => {
  const { it, id } = await running(t);
  await cancel(it, "policy => 'p', by => 'ana'");
  await failJob(it, id, 3600);
  for (let sweeps = 0; sweeps < 2; sweeps++) {
    const { rows } = await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
    const found = rows.filter(({ job_id }) => job_id !== null);
    await it.release(found.map(({ job_id, marked: _, ...rest }) => ({ job: job_id, ...rest })));
  }
  t.deepEqual(await errorOf(it, id), { last_error: "cancelled by ana (oops)", ended: true });
  t.deepEqual([await it.staged(), (await it.inFlight()).length], [0, 0]);
});

test("a start that asks is told of the cancel, and the next job in the row is not", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight()) as [string];
  await fetchJob(it, id);
  await cancel(it, "policy => 'p', reason => 'wrong batch', by => 'ana'");
  await it.pool.query("select graphile_worker.force_unlock_workers(array['worker'])");
  const start = async ({ revision, attempts }: { revision: number; attempts: number }) =>
    (
      await it.pool.query(
        "select * from dispatch_policy_internal._start_attempt($1, $2, $3, 'worker', null)",
        [id, revision, attempts],
      )
    ).rows[0];
  t.like(await start(await fetchJob(it, id)), { cancelled_by: "ana", cancel_reason: "wrong batch" });
  await failJob(it, id);
  await it.stage("a", { jobKey: "k" });
  t.is(await it.passes(2), 1);
  t.like(await start(await fetchJob(it, id)), { cancelled_by: null, cancel_reason: null });
});

for (const [unmanaged, gates] of [
  ["enforce", [concurrency(1)]],
  ["run", [concurrency(1), throttle(1000)]], // where tokens are paid, it does not inherit the slot
] as const) {
  test(`a job added past the policy in the row of a cancelled one is not cancelled: ${unmanaged}`, async (t) => {
    const it = await engine(t, { gates });
    await it.stage("a", { jobKey: "k" });
    await it.passes();
    const [id] = (await it.inFlight()) as [string];
    await fetchJob(it, id);
    await cancel(it, "policy => 'p'");
    await failJob(it, id, -1);
    t.is(await addPast(it, { key: "k" }), id);
    t.like(await startJob(it, await fetchJob(it, id), { unmanaged }), { verdict: "admitted" });
    const { rows } = await it.pool.query(
      "select cancelled_at, cancelled_by from dispatch_policy.in_flight_jobs",
    );
    t.deepEqual(rows, [{ cancelled_at: null, cancelled_by: null }]);
  });
}

test("a long backlog goes in steps of `count`, and a dry run counts all of it", async (t) => {
  const it = await engine(t, { gates: [concurrency(3)] });
  await it.stage(Array(9).fill("a"));
  await it.passes();
  for (const id of (await it.inFlight()).slice(1)) await fetchJob(it, id);
  const step = () => cancel(it, "policy => 'p', count => 2");
  t.like(await cancel(it, "policy => 'p', count => 2, dry_run => true"), { matched: 9, more: false });
  t.like(await step(), { matched: 5, changed: 5, running: 2, more: true }, "2 staged, 1 admitted, 2 run");
  t.like(await step(), { matched: 4, changed: 2, running: 0, more: true });
  t.like(await step(), { matched: 4, changed: 2, running: 0, more: true });
  t.like(await step(), { matched: 2, changed: 0, running: 0, more: false });
  t.is(await it.staged(), 0);
  await it.route();
  t.is(await it.wrongCounters(), 0);
});

test("a step after an id leaves the staged jobs before it to one without", async (t) => {
  const { it } = await world(t);
  const staged = async () =>
    (await it.pool.query("select id from dispatch_policy.staged_jobs order by id")).rows.map(({ id }) => id);
  const before = await staged();
  const step = (after: string) => cancel(it, `policy => 'p', count => 1, after => ${after}`);
  const first = await step("null");
  t.like(first, { more: true, last_id: before[0] });
  t.like(await step(before[1]!), { more: true, last_id: before[2] });
  t.deepEqual(await staged(), [before[1], ...before.slice(3)]);
  const last = await step(before.at(-1)!);
  t.like(last, { changed: 0, more: false, last_id: null });
  t.like(await step("0"), { more: true, last_id: before[1] });
});

test("without an author it is the session's user, in the error as in the audit", async (t) => {
  const { it, admitted } = await world(t);
  await cancel(it, `array[${admitted}]`);
  const { rows } = await it.pool.query("select by, session_user as me from dispatch_policy.audit");
  t.is(rows[0].by, rows[0].me);
  t.is((await errorOf(it, admitted)).last_error, `cancelled by ${rows[0].me}`);
});

test("what is refused", async (t) => {
  const it = await engine(t, GATES);
  for (const [rest, message] of [
    ["", /cancel: expected ids or a policy, got neither/],
    ["partition => 'a'", /cancel: expected ids or a policy, got neither/],
    ["array[1], partition => 'a'", /cancel: partition is 'a', expected a policy with it, got none/],
    ["array[1], count => 0", /cancel: count is 0, expected 1 or more/],
  ] as const)
    await t.throwsAsync(cancel(it, rest), { code: "DPARG", message }, rest);
  await t.throwsAsync(cancel(it, "policy => 'nobody'"), { message: /unknown policy 'nobody'/ });
  const session = await it.session();
  await session.query("begin isolation level repeatable read");
  await t.throwsAsync(session.query("select dispatch_policy.cancel(policy => 'p')"), {
    message: /cancel: transaction_isolation is repeatable read/,
  });
});

test("runs that fail because they were cancelled open no breaker, and lower no adaptive limit", async (t) => {
  const breaker = { failures: 2, withinSeconds: 600, cooldownSeconds: 600 };
  const it = await engine(t, { gates: [adaptive(10)], breaker });
  await it.stage(["a", "a", "a"]);
  await it.passes();
  const jobs = await it.inFlight();
  for (const id of jobs) await fetchJob(it, id);
  t.like(await cancel(it, "policy => 'p'"), { running: 3 });
  for (const id of jobs) await failJob(it, id);
  const failed = { ok: false, attempt: 1, lagMs: 1, durationMs: 5 };
  t.is((await it.release(jobs.map((job) => ({ job, ...failed })))).length, 3);
  await it.stage("a");
  t.is(await it.passes(), 1, "the partition is not held");
  t.is((await it.limiter("adaptive_concurrency")).current_max, 10);
  const ended = await it.table("activity").all();
  t.is(
    ended.reduce((sum, { failed }) => sum + failed, 0),
    3,
    "they count as failed",
  );
});

test("a probe that was cancelled says nothing: the next one goes", async (t) => {
  const breaker = { failures: 1, withinSeconds: 600, cooldownSeconds: 600 };
  const it = await engine(t, { gates: [], breaker });
  await it.stage(["a", "a"]);
  await it.route();
  await it.pool.query(`select dispatch_policy.hold('p', 'a', "for" => '0')`);
  t.is(await it.passes(2), 1, "the probe");
  const [probe] = (await it.inFlight()) as [string];
  await fetchJob(it, probe);
  await cancel(it, `array[${probe}]`);
  await failJob(it, probe);
  await it.release([{ job: probe, ok: false, attempt: 1 }]);
  t.is(await it.passes(), 1, "the next one");
  t.true((await it.partition("a")).probing);
});
