// What waiting jobs are in Graphile Worker once they were unstaged to it, one by one of the ways in which a job can wait.
import test from "ava";
import { isAsAdmitted, ticketOf } from "../../src/run/fetched-job.ts";
import { concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";
import { addPast, completeJob, failJob, fetchJob, startJob } from "../helpers/native.ts";
import { asText, workerTable } from "../helpers/table.ts";

const ROOMY = { gates: [concurrency(9)] };
const SHUT = { gates: [throttle(0)] };

interface Handed {
  readonly unstaged: number;
  readonly parked: number;
  readonly replaced: number;
  readonly refused: number;
  readonly expired: number;
  readonly unlocked: number;
  readonly tick_jobs: number;
  readonly dropped: boolean;
}

/** Uninstalls step by step, and returns the sums. Ends when a step unstages nothing. */
async function uninstall(it: Engine, force = false): Promise<Handed> {
  const total = {
    unstaged: 0,
    parked: 0,
    replaced: 0,
    refused: 0,
    expired: 0,
    unlocked: 0,
    tick_jobs: 0,
    dropped: false,
  };
  for (;;) {
    const { rows } = await it.pool.query("select * from dispatch_policy.uninstall($1)", [force]);
    const [step] = rows as [Handed];
    total.unstaged += step.unstaged;
    total.parked += step.parked;
    total.replaced += step.replaced;
    total.expired += step.expired;
    total.unlocked += step.unlocked;
    total.tick_jobs += step.tick_jobs;
    Object.assign(total, { refused: step.refused, dropped: step.dropped });
    if (step.dropped || step.unstaged + step.replaced + step.expired === 0) return total;
  }
}

const jobs = async (it: Engine, where = "true") =>
  (
    await it.pool.query(
      `select *, run_at = 'infinity' as stopped from graphile_worker.jobs where ${where} order by id`,
    )
  ).rows;

const payloads = async (it: Engine, where = {}) =>
  (await workerTable(it.pool).all(where, "id")).map(({ payload }) => payload);

/** Stages one job with this payload. */
async function stage(it: Engine, payload: unknown, options: object = {}, as = it.pool): Promise<void> {
  const batch = it.batch(["a"], options) as { jobs: object[] };
  const staged = batch.jobs.map((job) => ({ ...job, ...options, payload }));
  await as.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs: staged }]),
  ]);
}

/** A job of key k that failed, and waits parked for its retry in an hour. */
async function parked(it: Engine, { jobKey = "k" as string | undefined, refund = false } = {}) {
  await it.stage("a", { priority: 4, ...(jobKey !== undefined && { jobKey }) });
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  const { admission } = await it.table("in_flight_jobs").one();
  await fetchJob(it, id);
  await failJob(it, id);
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25, priority: 4, refund, jobKey };
  await it.release([{ job: id, ok: false, attempt: 1, admission, retry } as never]);
  return id;
}

const SPECS = {
  "one without options": {},
  "one for tomorrow": { runAt: new Date(Date.now() + 86_400_000) },
  "one that is never due": { runAt: "infinity" },
  "one in a queue": { queueName: "q", priority: -5, maxAttempts: 3 },
  "one with a key and flags": { jobKey: "k", flags: ["slow", "eu"] },
};
const PAYLOADS = { "an object": { a: [1, { b: "ü\n" }] }, "an array": [1, [2], "x"], "no object": "text" };

for (const [what, spec] of Object.entries(SPECS)) {
  for (const [which, payload] of Object.entries(PAYLOADS)) {
    test(`${what}, with ${which} as payload, is as if it had been added to Graphile Worker`, async (t) => {
      const it = await engine(t, SHUT);
      await stage(it, payload, spec);
      await it.passes();
      const given = spec as { runAt?: Date; queueName?: string; maxAttempts?: number };
      const rest = spec as { jobKey?: string; priority?: number; flags?: string[] };
      const { rows } = await it.pool.query("select run_at::text from dispatch_policy.staged_jobs");
      t.like(await uninstall(it), { unstaged: 1, parked: 0, dropped: true });
      const plain = `select id from graphile_worker.add_job('p', $1, $2, $3, $4, $5, $6, $7)`;
      const values = [
        JSON.stringify(payload),
        given.queueName,
        given.runAt ?? rows[0].run_at,
        given.maxAttempts,
      ];
      const key = rest.jobKey && `${rest.jobKey} of the plain one`;
      await it.pool.query(plain, [...values, key, rest.priority, rest.flags]);
      const COLUMNS = `task_identifier, queue_name, priority, run_at::text, attempts, max_attempts, last_error, revision,
        left(key, 1) as key, locked_at, flags`;
      const { rows: both } = await it.pool.query(`select ${COLUMNS} from graphile_worker.jobs order by id`);
      t.is(both.length, 2);
      t.deepEqual(both[0], both[1]);
      const [ours, theirs] = await workerTable(asText(it.pool)).all({}, "id");
      t.is(ours.payload, theirs.payload);
    });
  }
}

test("a failed job gets the time of its retry and its priority again, with its attempts and its error", async (t) => {
  const it = await engine(t, ROOMY);
  const id = await parked(it);
  const { rows } = await it.pool.query("select run_at from dispatch_policy.staged_jobs");
  t.true((await jobs(it))[0].stopped);
  t.like(await uninstall(it), { unstaged: 1, parked: 1, dropped: true });
  const [job, ...others] = await jobs(it);
  t.like(job, {
    id,
    attempts: 1,
    max_attempts: 25,
    last_error: "oops",
    priority: 4,
    key: "k",
    stopped: false,
  });
  t.deepEqual([job.run_at, others], [rows[0].run_at, []]);
});

test("a failed job whose newer one waits leaves its row to that one", async (t) => {
  const it = await engine(t, ROOMY);
  const id = await parked(it);
  await stage(it, { v: "newer" }, { jobKey: "k", runAt: new Date(Date.now() + 86_400_000) });
  t.like(await uninstall(it), { unstaged: 1, parked: 0, dropped: true });
  const [job, ...others] = await jobs(it);
  t.like(job, { id, attempts: 0, last_error: null, key: "k", stopped: false });
  t.deepEqual([await payloads(it), others], [[{ v: "newer" }], []]);
});

test("a newer job that is never due takes a failed one's row, and is not ended", async (t) => {
  const it = await engine(t, ROOMY);
  await parked(it);
  await stage(it, { v: "newer" }, { jobKey: "k", runAt: "infinity" });
  t.like(await uninstall(it), { unstaged: 1, dropped: true });
  t.like((await jobs(it))[0], { attempts: 0, last_error: null, key: "k", stopped: true });
});

test("a job that keeps the time of a failed one, whose attempt was freed, is not stopped for ever", async (t) => {
  const it = await engine(t, ROOMY);
  await parked(it, { refund: true });
  const batch = it.batch(["a"], { jobKey: "k" });
  await it.pool.query("select id from dispatch_policy_internal._stage($1, 'preserve_run_at')", [
    JSON.stringify([batch]),
  ]);
  t.like(await uninstall(it), { unstaged: 1, dropped: true });
  t.like((await jobs(it))[0], { attempts: 0, key: "k", stopped: false });
});

for (const task of ["p", "plain"]) {
  test(`a newer job of task ${task} that took a failed one's row past the package stays as it is`, async (t) => {
    const it = await engine(t, ROOMY);
    const id = await parked(it);
    await it.pool.query(
      "select graphile_worker.add_job($1, '{}', job_key => 'k', run_at => now() + interval '1 day', priority => 7)",
      [task],
    );
    t.like(await uninstall(it), { unstaged: 0, replaced: 1, dropped: true });
    t.like((await jobs(it))[0], { id, priority: 7, attempts: 0, stopped: false });
  });

  test(`of a key, a job of task ${task} that was added past the package later counts`, async (t) => {
    const it = await engine(t, SHUT);
    await stage(it, { v: "old" }, { jobKey: "k" });
    await addPast(it, { key: "k", task, payload: { v: "new" } });
    t.like(await uninstall(it), { unstaged: 0, replaced: 1, dropped: true });
    t.deepEqual(await payloads(it), [{ v: "new" }]);
  });

  test(`of a key, a job of task ${task} that was added past the package before is replaced`, async (t) => {
    const it = await engine(t, SHUT);
    await addPast(it, { key: "k", task, payload: { v: "old" } });
    await stage(it, { v: "new" }, { jobKey: "k" });
    t.like(await uninstall(it), { unstaged: 1, dropped: true });
    t.deepEqual(await payloads(it), [{ v: "new" }]);
  });
}

test("arrays under one key are merged once, as Graphile Worker does", async (t) => {
  const it = await engine(t, SHUT);
  await addPast(it, { key: "k", payload: [1] });
  await stage(it, [2], { jobKey: "k" });
  await stage(it, [3], { jobKey: "k" });
  t.like(await uninstall(it), { unstaged: 1, dropped: true });
  t.deepEqual(await payloads(it), [[1, 2, 3]]);
});

test("a job of a key that runs goes on, and the waiting one gets a row of its own", async (t) => {
  const it = await engine(t, ROOMY);
  await stage(it, { v: "running" }, { jobKey: "k" });
  await it.passes();
  await fetchJob(it, (await it.inFlight())[0]!);
  await stage(it, { v: "waiting" }, { jobKey: "k" });
  t.like(await uninstall(it), { unstaged: 1, dropped: true });
  t.deepEqual(await payloads(it), [{ v: "running" }, { v: "waiting" }]);
  t.deepEqual(await payloads(it, { is_available: true }), [{ v: "waiting" }]);
});

test("jobs in flight stay where they are, and can be fetched", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  await it.stage(Array(5).fill("a"));
  t.is(await it.passes(), 2);
  t.like(await uninstall(it), { unstaged: 3, dropped: true });
  t.is(await workerTable(it.pool).count({ is_available: true, run_at: (its) => `${its} <= now()` }), 5);
});

test("nor are they believed as admitted, should the package come back", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  await it.stage(["a", "a"]);
  await it.passes();
  t.like(await uninstall(it), { dropped: true });
  for (const { id } of await jobs(it)) {
    const job = (await fetchJob(it, id)) as never;
    t.false(isAsAdmitted(job, ticketOf(job)!));
  }
});

test("jobs that a killed worker has locked are unlocked, and those of other workers are not", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('worker', 1, '{p}', 'host', 1, '1 millisecond', '0')",
  );
  await it.stage(["a", "a"]);
  await it.passes();
  const [killed, other] = (await it.inFlight("a")) as [string, string];
  await fetchJob(it, killed);
  await fetchJob(it, other, "other");
  t.like(await uninstall(it), { unlocked: 1, dropped: true });
  t.deepEqual(
    (await jobs(it)).map(({ id, locked_by }) => [id, locked_by]),
    [
      [killed, null],
      [other, "other"],
    ],
  );
});

/** Graphile Worker refuses jobs with a bad payload, until the end. */
const refuse = (it: Engine) =>
  workerTable(it.pool).before(
    "insert",
    "if new.payload::text like '%bad%' then raise exception 'too large'; end if",
  );

test("a job that Graphile Worker refuses keeps the schema, and no other job", async (t) => {
  const it = await engine(t, SHUT);
  const accept = await refuse(it);
  for (const payload of ["bad", "good", "bad", "good", "good"]) await stage(it, { payload });
  t.like(await uninstall(it), { unstaged: 3, refused: 2, dropped: false });
  t.like(await uninstall(it), { unstaged: 0, refused: 2, dropped: false });
  const { rows } = await it.pool.query("select error from dispatch_policy.staged_jobs");
  t.deepEqual(rows, [{ error: "too large" }, { error: "too large" }]);
  t.is((await payloads(it)).length, 3);
  await accept();
  t.like(await uninstall(it), { unstaged: 2, refused: 0, dropped: true });
  t.is((await payloads(it)).length, 5);
});

test("more refused jobs than a step takes do not keep the others", async (t) => {
  const it = await engine(t, SHUT);
  await refuse(it);
  for (let n = 0; n < 6; n++) await stage(it, "bad");
  await stage(it, "good");
  await it.table("staged_jobs").set({ error: "refused before", failures: 1 });
  for (let step = 0; step < 4; step++) await it.pool.query("select dispatch_policy.uninstall(count => 2)");
  t.deepEqual(await payloads(it), ["good"]);
});

test("a job that was quarantined because its policy rejects it goes back as well", async (t) => {
  const it = await engine(t, ROOMY);
  const job = await fetchJob(it, await addPast(it, { payload: { v: 1 } }));
  t.is((await startJob(it, job, { unmanaged: "reject", payload: { v: 1 } })).verdict, "copied");
  await completeJob(it, job.id);
  t.like(await uninstall(it), { unstaged: 1, dropped: true });
  t.deepEqual(await payloads(it), [{ v: 1 }]);
});

test("the original of a copy that was copied does not run beside the copy", async (t) => {
  const it = await engine(t, SHUT);
  const job = await fetchJob(it, await addPast(it, { payload: { v: 1 } }));
  t.is((await startJob(it, job, { payload: { v: 1 } })).verdict, "copied");
  // its worker died before it completed, and somebody unlocked it
  await it.pool.query("select graphile_worker.force_unlock_workers(array['worker'])");
  t.like(await uninstall(it), { unstaged: 1, dropped: true });
  t.deepEqual(await payloads(it), [{ v: 1 }]);
});

test("a job whose key only JavaScript can work out, and jobs of partitions that were never routed, go back", async (t) => {
  const it = await engine(t, SHUT);
  await it.pool.query(`select dispatch_policy.add_job('p', '{"v":1}')`);
  await stage(it, { v: 2 });
  await it.pool.query("select dispatch_policy.switch_policy('p', false)");
  t.like((await it.pool.query("select * from dispatch_policy.unstage('p')")).rows[0], {
    matched: 2,
    changed: 2,
  });
  t.deepEqual(await payloads(it), [{ v: 1 }, { v: 2 }]);
});

test("jobs of a task that the policy no longer declares go back with it", async (t) => {
  const it = await engine(t, { ...SHUT, otherTasks: ["was"] });
  await it.stage("a", { task: "was" });
  await it.passes();
  await it.table("policy_tasks").remove({ task_identifier: "was" });
  await it.pool.query("select dispatch_policy.switch_policy('p', false)");
  t.like((await it.pool.query("select * from dispatch_policy.unstage('p')")).rows[0], {
    matched: 1,
    changed: 1,
  });
  t.is((await jobs(it))[0].task_identifier, "was");
});

test("unstage is refused while the policy is on", async (t) => {
  const it = await engine(t, SHUT);
  await it.stage("a");
  await t.throwsAsync(it.pool.query("select dispatch_policy.unstage('p')"), {
    message: /policy 'p' is on, expected it off.*switch_policy\('p', false\)/,
  });
  t.is(await it.staged(), 1);
});

test("unstage takes only its policy's jobs, and a dry run none", async (t) => {
  const it = await engine(t, SHUT);
  await it.pool.query(`select dispatch_policy_internal._declare_policy(definition || '{"name": "o", "tasks": ["o"]}', 'o', '{}', now())
    from dispatch_policy.policies`);
  await it.stage(["a", "a", "b"]);
  const other = it.batch(["a"], { task: "o" });
  await it.pool.query("select dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...other, policy: "o" }]),
  ]);
  await it.passes();
  t.like((await it.pool.query("select * from dispatch_policy.unstage('p', dry_run => true)")).rows[0], {
    ...{ matched: 3, changed: 0 },
  });
  await it.pool.query("select dispatch_policy.switch_policy('p', false)");
  t.like((await it.pool.query("select * from dispatch_policy.unstage('p')")).rows[0], {
    matched: 3,
    changed: 3,
  });
  t.deepEqual(
    (await jobs(it)).map(({ task_identifier }) => task_identifier),
    ["p", "p", "p"],
  );
  t.is(await it.staged(), 1);
  t.deepEqual(await it.leftovers().then(({ arrivals }) => arrivals), 1); // the other policy's
});

const LONG_AGO = new Date("2020-01-01");

test("jobs that have expired are dropped and counted, and do not run in Graphile Worker", async (t) => {
  const it = await engine(t, { ...SHUT, maxPending: { policy: 4, whenFull: "reject" } });
  const [first] = await it.stage(["a", "a"], { expiresAt: new Date("2100-01-01") });
  await it.stage(["a", "b"]);
  await it.passes();
  // one that has waited for long, and one that no router has seen
  await it.table("staged_jobs").set({ expires_at: LONG_AGO }, { id: first });
  await it.pool.query("select dispatch_policy.switch_policy('p', false)");
  const dry = await it.pool.query("select * from dispatch_policy.unstage('p', dry_run => true)");
  t.deepEqual(dry.rows, [{ matched: 4, changed: 0, refused: 0, expired: 1 }]);
  const { rows } = await it.pool.query("select * from dispatch_policy.unstage('p')");
  t.deepEqual(rows, [{ matched: 4, changed: 4, refused: 0, expired: 1 }]);
  t.is((await jobs(it)).length, 3);
  const drops = await it.pool.query(
    "select d.* from dispatch_policy_internal._consume_events('p', true) e, jsonb_to_recordset(e.drops) d (partition text, reason text, jobs int)",
  );
  t.deepEqual(drops.rows, [{ partition: "a", reason: "expired", jobs: 1 }]);
  await it.route();
  t.like(await it.partition("a"), { dropped_total: "1", staged: 0 });
  t.is(await it.wrongCounters(), 0);
  await it.pool.query("select dispatch_policy.switch_policy('p', true)");
  t.is((await it.stage(["a", "a", "a", "b"])).length, 4, "the backlog has all its room again");
});

test("an uninstall drops jobs that have expired, also those without a key", async (t) => {
  const it = await engine(t, SHUT);
  await it.stage("a", { expiresAt: LONG_AGO });
  await it.pool.query(`select dispatch_policy.add_job('p', '{"v":1}', expires_at => '2020-01-01')`);
  await it.pool.query(`select dispatch_policy.add_job('p', '{"v":2}', expires_at => '2100-01-01')`);
  t.like(await uninstall(it), { unstaged: 1, expired: 2, dropped: true });
  t.deepEqual(await payloads(it), [{ v: 2 }]);
});

test("a bounded backlog has its room again", async (t) => {
  const it = await engine(t, { ...SHUT, maxPending: { policy: 3, whenFull: "reject" } });
  await it.stage(["a", "a", "b"]);
  await it.pool.query("select dispatch_policy.switch_policy('p', false)");
  await it.pool.query("select dispatch_policy.unstage('p')");
  await it.pool.query("select dispatch_policy.switch_policy('p', true)");
  t.is((await it.stage(["a", "a", "b"])).length, 3);
  await t.throwsAsync(it.stage("a"), { message: /pending/ });
});

test("the jobs of the crontab's task are removed, and no other job", async (t) => {
  const it = await engine(t, SHUT);
  await addPast(it, { task: "dispatch_policy_tick", key: "dispatch_policy_tick" });
  await addPast(it, { task: "plain" });
  t.like(await uninstall(it), { tick_jobs: 1, dropped: true });
  t.deepEqual(
    (await jobs(it)).map(({ task_identifier }) => task_identifier),
    ["plain"],
  );
});

test("a whole uninstall can be one block of SQL", async (t) => {
  const it = await engine(t, SHUT);
  await it.stage(Array(7).fill("a"));
  await it.pool.query(`do $$
    declare is_dropped boolean;
    begin
      loop
        select dropped into is_dropped from dispatch_policy.uninstall(count => 2);
        commit;
        exit when is_dropped;
      end loop;
    end $$`);
  t.is((await payloads(it)).length, 7);
  t.is((await it.pool.query("select to_regnamespace('dispatch_policy') as there")).rows[0].there, null);
});

test("uninstall under another isolation level is refused", async (t) => {
  const it = await engine(t, SHUT);
  const session = await it.session();
  await session.query("begin isolation level repeatable read");
  await t.throwsAsync(session.query("select dispatch_policy.uninstall()"), {
    message: /expected read committed/,
  });
});
