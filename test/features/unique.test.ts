// Scenario 37: job keys that are remembered after their jobs (`uniqueFor`).
import { EventEmitter } from "node:events";
import test from "ava";
import { Logger, type WorkerEvents } from "graphile-worker";
import {
  concurrency,
  definePolicy,
  type JobSpec,
  type PolicyEventMap,
  policyEvents,
} from "../../src/index.ts";
import { readEvents, until } from "../helpers/engine.ts";
import { type Ctx, policyOf, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { table, workerTable } from "../helpers/table.ts";

const add = (it: Scenario, spec: JobSpec = {}, payload: object = { key: "a" }) =>
  it.utils.addJob(it.policy, payload as never, { jobKey: "k", ...spec });

/** As if so much time had gone by since the jobs ended. */
async function goBy(it: Scenario, time: string): Promise<void> {
  const earlier = (its: string) => `${its} - interval '${time}'`;
  await readEvents(it.pool);
  await table(it.pool, "unique_keys").set({ look_at: earlier, ended_at: earlier });
}

/** Admits and completes a job. */
async function complete(it: Scenario): Promise<void> {
  it.t.is((await it.tickNow()).admitted, 1);
  await it.finish(1);
}

/** How many keys are stored, and of how many the last job has ended. */
const stored = async (it: Scenario) => {
  await readEvents(it.pool);
  const keys = table(it.pool, "unique_keys");
  return { keys: await keys.count(), ends: await keys.count({ ended_at: (its) => `${its} is not null` }) };
};

for (const via of VIAS) {
  test(`scenario 37: a key is remembered for its time after its job has completed (${via})`, async (t) => {
    const it = await scenario(t, { uniqueFor: "1 hour" }, { via });
    const first = await add(it);
    t.is(first.staged && first.dropped, undefined);
    await complete(it);
    const second = await add(it);
    t.like(second, { id: first.id, staged: true, dropped: true, key: "k", partition: "a", policy: "p" });
    t.is(await it.staged(), 0);
    t.like(await it.tickNow(), { admitted: 0, dropped: 1 });
    t.is((await it.partition("a")).dropped_total, "1");
    await goBy(it, "59 minutes 50 seconds");
    t.like(await add(it), { id: first.id, dropped: true });
    await goBy(it, "10 seconds");
    const third = await add(it);
    t.true(BigInt(third.id) > BigInt(first.id));
    t.is(third.staged && third.dropped, undefined);
    t.is(await it.staged(), 1);
    await complete(it);
    t.like(await add(it), { id: third.id, dropped: true }, "from the end of the last job");
  });
}

test("scenario 37: while a job of the key waits or runs, a new one replaces it or waits, and the last one's end counts", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  const hands = await it.hands();
  const first = await add(it);
  t.is((await add(it, {}, { key: "a", n: 2 })).id, first.id, "it replaces the staged one");
  t.is((await it.tickNow()).admitted, 1);
  await hands.run(1);
  const second = await add(it);
  t.not(second.id, first.id);
  await hands.end(1);
  t.is((await add(it, {}, { key: "a", n: 3 })).id, second.id, "the first job's end starts no time");
  t.is((await it.tickNow()).admitted, 1);
  await hands.end(1);
  t.like(await add(it), { id: second.id, dropped: true });
});

test("other keys, other policies and jobs without a key are added", async (t) => {
  const it = await scenario(
    t,
    { uniqueFor: "1 hour" },
    { others: [policyOf("other"), policyOf("third", { uniqueFor: "1 hour" })] },
  );
  await add(it);
  await complete(it);
  await it.stage("1@a");
  await add(it, { jobKey: "another" });
  t.is(await it.staged(), 2);
  for (const task of ["other", "third"]) {
    const job = await it.utils.addJob(task, { key: "a" } as never, { jobKey: "k" });
    t.is(job.staged && job.dropped, undefined, task);
  }
});

test("of several jobs of a call only those are dropped whose keys are remembered", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  const first = await add(it);
  await complete(it);
  const jobs = ["x", "k", "y"].map((jobKey) => ({ identifier: "p", payload: { key: jobKey }, jobKey }));
  const added = await it.utils.addJobs([...jobs, { identifier: "p", payload: { key: "z" } }] as never);
  t.deepEqual(
    added.map((job) => job.staged && (job.dropped ?? false)),
    [false, true, false, false],
  );
  t.is(added[1]?.id, first.id);
  t.is(await it.staged(), 3);
  t.like(await it.tickNow(), { admitted: 3, dropped: 1 });
});

test("a job that fails for good is not remembered, and one that succeeds at its retry is", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour", backoff: () => "0 ms" });
  const hands = await it.hands();
  await add(it, { maxAttempts: 1 });
  await it.tickNow();
  await hands.end(1, "badly");
  const second = await add(it);
  t.is(second.staged && second.dropped, undefined);
  await it.tickNow();
  await hands.end(1, "badly");
  await until("its retry is admitted", async () => (await it.tickNow()).admitted === 1);
  await hands.end(1);
  t.like(await add(it), { id: second.id, dropped: true });
});

test("a job that got the row of a failed one of its key is remembered when its own retry succeeds", async (t) => {
  const it = await scenario(
    t,
    {
      uniqueFor: "1 hour",
      backoff: () => "10 minutes",
      maxPending: { policy: 100 },
      history: { keep: "1 day" },
    },
    { others: [policyOf("report")] },
  );
  const hands = await it.hands();
  const job = { identifier: "p", payload: { key: "a" }, jobKey: "k" };
  const [first] = await it.utils.addJobs([job] as never, false, {
    then: { identifier: "report", payload: { key: "r" } },
  });
  await it.tickNow();
  await hands.end(1, "badly");
  const second = await add(it);
  t.is((await it.tickNow()).admitted, 1);
  t.is(await it.staged(), 0, "nothing is left to retry of the first");
  t.is((await it.partition("a")).staged, 0);
  t.deepEqual(await it.rows("select outcome from dispatch_policy.history where id = $1", [first!.id]), [
    { outcome: "replaced" },
  ]);
  t.deepEqual(
    await it.rows("select id from dispatch_policy.groups"),
    [],
    "its group does not wait for the second",
  );
  await hands.end(1, "badly");
  t.deepEqual(await it.rows("select id from dispatch_policy.staged_jobs where policy = 'p'"), [
    { id: second.id },
  ]);
  t.is((await it.tick(700)).admitted, 1);
  await hands.end(1);
  t.like(await add(it), { id: second.id, dropped: true });
  t.like((await it.utils.sweep()).repaired, { pending: 0 });
});

for (const room of [true, false])
  test(`a failed job that somebody retries in Graphile Worker is remembered, ${room ? "also if it runs at once" : "also if a copy of it runs"}`, async (t) => {
    const it = await scenario(t, {
      uniqueFor: "1 hour",
      backoff: () => "10 minutes",
      gates: [concurrency<Ctx>({ max: 1 })],
    });
    const hands = await it.hands();
    await add(it);
    await it.tickNow();
    await hands.end(1, "badly");
    const [failed] = await it.rows("select id, job_id from dispatch_policy.staged_jobs");
    if (!room) {
      await it.stage("1@a");
      t.is((await it.tickNow()).admitted, 1);
      await hands.run(1);
    }
    await it.rows("select graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now())", [
      failed.job_id,
    ]);
    if (!room) {
      await until("it is copied", async () => {
        const jobs = await it.rows("select id from graphile_worker.jobs where id = $1", [failed.job_id]);
        return jobs.length === 0;
      });
      await hands.end(1);
      t.is((await it.tickNow()).admitted, 1);
    }
    await hands.run(1);
    t.is(await it.staged(), 0, "it waits nowhere else");
    const [running] = await it.inFlight();
    if (room) t.is(running!.staged_id, failed.id, "it is the same job");
    await hands.end(1);
    t.like(await add(it), { id: running!.staged_id, dropped: true });
  });

test("a job whose slot was freed while it ran is remembered when it succeeds", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  const hands = await it.hands();
  const jobs = [await add(it), await add(it, { jobKey: "other" })];
  t.is((await it.tickNow()).admitted, 2);
  await hands.run(2);
  for (const { job_id } of await it.inFlight()) await it.utils.releaseSlots({ jobId: job_id });
  t.deepEqual(await it.inFlight(), []);
  await hands.end(2);
  await until("their ends are known", async () => (await stored(it)).ends === 2);
  t.like(await add(it), { id: jobs[0]!.id, dropped: true });
  t.like(await add(it, { jobKey: "other" }), { id: jobs[1]!.id, dropped: true });
});

test("a job whose slot was freed is not remembered when it fails, nor if it is not the last of its key", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  const hands = await it.hands();
  // by their partitions: workers may start them in any order
  await add(it, { maxAttempts: 1 });
  await add(it, { jobKey: "other" }, { key: "b" });
  await add(it, { jobKey: "last" }, { key: "c" });
  await it.tickNow();
  await hands.run(3);
  const newer = await add(it, { jobKey: "other" }, { key: "b" });
  for (const { job_id } of await it.inFlight()) await it.utils.releaseSlots({ jobId: job_id });
  await hands.end(1, "badly", "a");
  await hands.end(1, "well", "b");
  await hands.end(1, "well", "c");
  await until("the end of the last one is known", async () => (await stored(it)).ends > 0);
  t.is((await stored(it)).ends, 1, "releases go in order, so the others had theirs");
  t.like(await add(it), { dropped: undefined });
  t.like(await add(it, { jobKey: "other" }, { key: "b" }), { id: newer.id, dropped: undefined });
});

test("a job that ended in a worker without this package is remembered, and a cancelled one is not", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  const first = await add(it);
  await it.tickNow();
  await it.rows(
    "select graphile_worker.complete_jobs(array(select job_id from dispatch_policy.in_flight_jobs))",
  );
  await it.utils.sweep();
  t.like(await add(it), { id: first.id, dropped: true });
  await add(it, { jobKey: "c" });
  await it.tickNow();
  await it.utils.cancel({ policy: "p" });
  await it.utils.sweep();
  const again = await add(it, { jobKey: "c" });
  t.is(again.staged && again.dropped, undefined);
});

test("a job of the key that waits in staging is replaced, although the one before it is remembered", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  await add(it);
  await complete(it);
  await it.rows(`select graphile_worker.add_job('p', '{"key": "a"}', job_key => 'k')`);
  await it.utils.adopt({ task: "p" });
  const [adopted] = await it.rows("select id from dispatch_policy.staged_jobs");
  const job = await add(it, {}, { key: "a", n: 2 });
  t.is(job.id, adopted.id);
  t.is(job.staged && job.dropped, undefined);
});

test("a job of the key that waits in Graphile Worker is replaced, although the one before it is remembered", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  await add(it);
  await complete(it);
  await it.utils.disable({ policy: "p" });
  await add(it, { wait: "1 hour" }, { key: "a", n: 1 });
  await it.utils.enable({ policy: "p" });
  const job = await add(it, {}, { key: "a", n: 2 });
  t.is(job.staged && job.dropped, undefined);
  t.is((await it.tickNow()).admitted, 1);
  const jobs = await workerTable(it.pool).all();
  t.deepEqual(
    jobs.map(({ payload }) => payload),
    [{ key: "a", n: 2 }],
  );
});

test("a job of the key that failed for good in Graphile Worker does not forget the one that is remembered", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  const first = await add(it);
  await complete(it);
  await it.rows(`select graphile_worker.add_job('none', job_key => 'k')`);
  await it.rows(
    "select graphile_worker.permanently_fail_jobs(array(select id from graphile_worker.jobs where key = 'k'), 'x')",
  );
  t.like(await add(it), { id: first.id, dropped: true });
});

test("another policy's job keeps a key out (unsafe_dedupe), and is not remembered as the last one", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" }, { others: [policyOf("q")] });
  const first = await add(it);
  await complete(it);
  await it.utils.addJob("q", { key: "a" } as never, { jobKey: "k" });
  t.like(await add(it, { jobKeyMode: "unsafe_dedupe" }), { id: null, dropped: true });
  await it.utils.remove({ policy: "q", partition: "a" });
  t.like(await add(it), { id: first.id, dropped: true });
});

test("remove_job forgets a key", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  await add(it);
  await complete(it);
  await it.rows("select dispatch_policy.remove_job('k')");
  const again = await add(it);
  t.is(again.staged && again.dropped, undefined);
});

for (const [how, own] of [
  ["SQL works the key out", definePolicy("p", { partitionBy: "key", uniqueFor: "1 hour" })],
  ["JavaScript works it out", policyOf("p", { uniqueFor: "1 hour" })],
] as const) {
  test(`jobs from SQL are dropped, and told: ${how}`, async (t) => {
    const it = await scenario(t, own);
    const sql = async (mode = "replace") =>
      (
        await it.rows(
          `select * from dispatch_policy.add_job('p', '{"key": "a"}', job_key => 'k', job_key_mode => '${mode}')`,
        )
      )[0];
    const first = await sql();
    t.false(first.dropped);
    await complete(it);
    for (const mode of ["replace", "preserve_run_at", "unsafe_dedupe"])
      t.like(await sql(mode), { id: first.id, staged: true, dropped: true }, mode);
    const job = (key: string) => `row('p', '{"key": "a"}', null, null, null, '${key}', null, null)`;
    const many = await it.rows(
      `select * from dispatch_policy.add_jobs(array[${job("x")}, ${job("k")}]::graphile_worker.job_spec[])`,
    );
    t.deepEqual(
      many.map(({ dropped }) => dropped),
      [false, true],
    );
    const other = await it.makeUtils([]);
    t.like(await other.addJob("p", { key: "a" } as never, { jobKey: "k" }), { id: first.id, dropped: true });
    t.is((await it.tickNow()).dropped, 5);
  });
}

test("a dropped job takes no room of a bounded backlog, and drops nobody", async (t) => {
  const it = await scenario(t, {
    uniqueFor: "1 hour",
    maxPending: { partition: 1, policy: 1, strict: true },
    gates: [concurrency<Ctx>({ max: 1 })],
  });
  await add(it);
  await complete(it);
  await it.stage("1@a");
  t.like(await add(it), { dropped: true });
  await t.throwsAsync(add(it, { jobKey: "other" }), { code: "backlog_full" });
  t.is(await it.staged(), 1);
  t.is((await it.utils.sweep()).repaired.pending, 0);
});

test("a policy that is off drops nothing, and one without uniqueFor stores nothing", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" }, { others: [policyOf("plain")] });
  await add(it);
  await complete(it);
  await it.utils.disable({ policy: "p" });
  t.false((await add(it)).staged);
  await it.utils.addJob("plain", { key: "a" } as never, { jobKey: "plain" });
  t.deepEqual(await stored(it), { keys: 1, ends: 1 });
});

test("a sweep forgets keys whose time is over or whose job is gone, and keeps those of jobs that are still there", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  for (const jobKey of ["done", "removed", "waits", "runs"]) await add(it, { jobKey }, { key: jobKey });
  await it.rows(
    "select dispatch_policy.reschedule_jobs(array(select id from dispatch_policy.staged_jobs where job_key in ('removed', 'waits')), run_at => now() + interval '1 day')",
  );
  t.is((await it.tickNow()).admitted, 2);
  await it.finish(1, "done");
  await it.utils.remove({ policy: "p", partition: "removed" });
  await it.utils.sweep();
  t.deepEqual(await stored(it), { keys: 4, ends: 1 }, "none is due");
  await goBy(it, "2 hours");
  await it.utils.sweep();
  const keys = await table(it.pool, "unique_keys").all({}, "job_key");
  t.deepEqual(
    keys.map(({ job_key }) => job_key),
    ["runs", "waits"],
  );
  t.deepEqual(await stored(it), { keys: 2, ends: 0 });
  await it.finish(1, "runs");
  t.like(await add(it, { jobKey: "runs" }), { dropped: true });
  await it.utils.remove({ policy: "p", partition: "waits" });
  await goBy(it, "3 hours");
  await it.utils.sweep();
  t.deepEqual(await stored(it), { keys: 0, ends: 0 });
});

test("a key is not remembered for longer because a clock was ahead", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  await add(it);
  await complete(it);
  await goBy(it, "-1 year");
  await it.utils.sweep();
  t.like(await add(it), { dropped: true });
  await goBy(it, "1 hour");
  const again = await add(it);
  t.is(again.staged && again.dropped, undefined);
  await it.utils.remove({ policy: "p", partition: "a" });
  await goBy(it, "1 minute");
  await it.utils.sweep();
  t.deepEqual(await stored(it), { keys: 0, ends: 0 });
});

test("keys are forgotten with the option", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  await add(it);
  await complete(it);
  await it.makeUtils([policyOf("p")]);
  const again = await add(it);
  t.is(again.staged && again.dropped, undefined);
  await goBy(it, "1 hour");
  await it.utils.sweep();
  t.deepEqual(await stored(it), { keys: 0, ends: 0 });
});

test("keys are forgotten with their policy", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  await add(it);
  await complete(it);
  await it.utils.removePolicy({ policy: "p" });
  t.deepEqual(await stored(it), { keys: 0, ends: 0 });
});

test("a tick loop tells of jobs whose keys are remembered, and warns of nothing", async (t) => {
  const it = await scenario(t, { uniqueFor: "1 hour" });
  const told: PolicyEventMap["dispatchPolicy:drop"][] = [];
  const events: WorkerEvents = new EventEmitter();
  policyEvents(events).on("dispatchPolicy:drop", (event) => told.push(event));
  const ended: string[] = [];
  const warnings: string[] = [];
  const logger = new Logger(() => (level, message) => {
    if (level === "warning") warnings.push(message);
  });
  await it.worker({ tasks: { p: (_payload, { job }) => void ended.push(job.id) }, events, logger });
  await add(it);
  await until("its end is known", async () => (await stored(it)).ends === 1);
  await add(it);
  await until("it is told", () => told.length > 0);
  t.deepEqual(told, [{ policy: "p", partition: "a", reason: "unique", count: 1 }]);
  t.is(ended.length, 1);
  t.deepEqual(warnings, [], "it is as it should be");
});
