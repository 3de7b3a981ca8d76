// Every way in which a job of a group may end: each counts once, under its name, and the last one adds the callback.
import test, { type ExecutionContext } from "ava";
import {
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  type StageOptions,
} from "../helpers/engine.ts";
import { completeJob, failJob, fetchJob } from "../helpers/native.ts";

const THEN = { identifier: "p", payload: { key: "then" } };

async function world(t: ExecutionContext, options: Partial<EngineOptions> = {}) {
  const it = await engine(t, { gates: [], keyPath: "key", ...options });
  const query = (text: string, values: unknown[] = []) => it.pool.query(text, values);
  /** Adds a group with a job in each of these partitions. Returns their ids. */
  const group = async (partitions: string[], how: StageOptions = {}, then: object = THEN) => {
    const batch = it.batch(partitions, how) as { jobs: object[] };
    const jobs = batch.jobs.map((job, n) => ({ ...job, payload: { key: partitions[n] } }));
    const { rows } = await (how.as ?? it.pool).query(
      "select id from dispatch_policy.enqueue_group($1, 'replace', null, $2) order by n",
      [JSON.stringify([{ ...batch, jobs }]), JSON.stringify(then)],
    );
    return rows.map(({ id }) => id as string);
  };
  const set = (values: object) => it.table("policies").set({ ...values });
  const enable = (enabled: boolean) => query("select dispatch_policy.switch_policy('p', $1)", [enabled]);
  const sweep = async () => {
    await query("select dispatch_policy_internal._sweep_replaced()");
    for (const look of ["marks", "finds"]) {
      const { rows } = await query(
        "select job_id as job, admission, attempt, ok from dispatch_policy_internal._sweep_in_flight(interval '0')",
      );
      if (look === "finds") await it.release(rows.filter(({ job }) => job !== null));
    }
    await it.readEvents();
    return it.number("select closed from dispatch_policy_internal._close_groups()");
  };
  /** A job runs, fails, and is parked for its retry. */
  const failOnce = async (job: string) => {
    await fetchJob(it, job);
    await failJob(it, job, 0);
    await it.release([
      { job, ok: false, attempt: 1, retry: { attempt: 1, revision: 0, after: 0, task: "p" } },
    ]);
  };
  return { it, query, group, set, enable, sweep, failOnce };
}

/** The counts of the callbacks that were added, as far as they are not 0. */
async function called(it: Engine): Promise<object[]> {
  return (await it.groupCounts()).map(({ id: _, ...counts }) =>
    Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== 0)),
  );
}
const seen = async (it: Engine, query: string) => {
  await it.readEvents();
  return it.number(query);
};
const left = (it: Engine) => seen(it, "select sum(jobs_left)::int from dispatch_policy.groups");
const members = (it: Engine) => seen(it, "select count(*)::int from dispatch_policy.group_jobs");
const empty = async (t: ExecutionContext, it: Engine) => {
  t.is(await left(it), null as never);
  t.is(await members(it), 0);
  t.is(await it.table("events").count(), 0);
};

const FAIL = "select graphile_worker.permanently_fail_jobs(array[$1::bigint], 'why')";
const DONE = "select graphile_worker.complete_jobs(array[$1::bigint])";

test("success, and failure for good", async (t) => {
  const { it, query, group } = await world(t);
  await group(["a", "b"]);
  await it.passes();
  const [good, bad] = await it.inFlight();
  await it.finish([good!]);
  t.is(await left(it), 1);
  await query(FAIL, [bad]);
  await it.release([{ job: bad!, ok: false }]);
  t.deepEqual(await called(it), [{ total: 2, succeeded: 1, failed: 1 }]);
  await it.release([good!, bad!]);
  t.is((await called(it)).length, 1, "a second release of theirs changes nothing");
  await empty(t, it);
});

test("a failed job goes on until its retry has ended", async (t) => {
  const { it, group, sweep, failOnce } = await world(t);
  await group(["a"]);
  await it.passes();
  const [job] = await it.inFlight();
  await failOnce(job!);
  t.is(await it.staged(), 1, "it is parked");
  t.is(await sweep(), 0);
  t.is(await left(it), 1);
  await it.passes();
  await it.finish([job!]);
  t.deepEqual(await called(it), [{ total: 1, succeeded: 1 }]);
});

test("a job that failed for good and is retried later counts no second time", async (t) => {
  const { it, query, group } = await world(t);
  await group(["a", "b"]);
  await it.passes();
  const [job, other] = await it.inFlight();
  await query(FAIL, [job]);
  await it.release([{ job: job!, ok: false }]);
  await query("select dispatch_policy.retry(array[$1::bigint])", [job]);
  await it.passes();
  await it.finish([job!]);
  t.is(await left(it), 1);
  await it.finish([other!]);
  t.deepEqual(await called(it), [{ total: 2, succeeded: 1, failed: 1 }]);
});

test("operators remove, complete, fail and cancel staged jobs", async (t) => {
  const { it, query, group } = await world(t);
  const [removed, completed, failed] = await group(["a", "a", "a", "cancelled"]);
  await group(["a"], { jobKey: "k" });
  await it.route();
  await query("select dispatch_policy.remove(array[$1::bigint])", [removed]);
  await query("select dispatch_policy.complete_jobs(array[$1::bigint])", [completed]);
  await query("select dispatch_policy.permanently_fail_jobs(array[$1::bigint], 'why')", [failed]);
  await query("select dispatch_policy.cancel(policy => 'p', partition => 'cancelled')");
  await query("select dispatch_policy.remove_job('k')");
  t.deepEqual(await called(it), [
    { total: 4, removed: 3, failed: 1 },
    { total: 1, removed: 1 },
  ]);
});

test("operators cancel, complete and fail admitted jobs, and parked ones", async (t) => {
  const { it, query, group, sweep } = await world(t);
  await group(["cancelled", "completed", "failed"]);
  await it.passes();
  const [, completed, failed] = await it.inFlight();
  await query("select dispatch_policy.cancel(policy => 'p', partition => 'cancelled')");
  await query("select dispatch_policy.complete_jobs(array[$1::bigint])", [completed]);
  await query("select dispatch_policy.permanently_fail_jobs(array[$1::bigint], 'why')", [failed]);
  await sweep();
  t.deepEqual(await called(it), [{ total: 3, gone: 1, failed: 2 }]);
});

for (const [how, end, counts] of [
  ["removed by this package's verb", "dispatch_policy.remove(array[$1::bigint])", { removed: 1 }],
  [
    "failed by this package's verb",
    "dispatch_policy.permanently_fail_jobs(array[$1::bigint])",
    { failed: 1 },
  ],
  ["completed by this package's verb", "dispatch_policy.complete_jobs(array[$1::bigint])", { removed: 1 }],
  ["failed in Graphile Worker", "graphile_worker.permanently_fail_jobs(array[$1::bigint])", { failed: 1 }],
  ["completed in Graphile Worker", "graphile_worker.complete_jobs(array[$1::bigint])", { gone: 1 }],
] as const) {
  test(`a job that waits for its retry is ${how}`, async (t) => {
    const { it, query, group, sweep, failOnce } = await world(t);
    await group(["a"]);
    await it.passes();
    const [job] = await it.inFlight();
    await failOnce(job!);
    await it.route();
    await query(`select ${end}`, [job]);
    await it.passes();
    if (!how.includes("package")) await sweep();
    t.deepEqual(await called(it), [{ total: 1, ...counts }]);
    await empty(t, it);
  });
}

test("jobs are dropped: expired in a pass and in a sweep, denied, and for newer ones", async (t) => {
  const { it, query, group, set } = await world(t, { gates: [concurrency(1)] });
  const [expired, swept] = await group(["a", "b"], { expiresAt: new Date(Date.now() + 60_000) });
  const expire = (id?: string) => it.table("staged_jobs").set({ expires_at: "-infinity" }, { id });
  await expire(swept);
  await query("select dispatch_policy_internal._sweep_expired(now())");
  t.is(await left(it), 1);
  await it.route();
  await expire(expired);
  await it.admit();
  t.deepEqual(await called(it), [{ total: 2, dropped: 2 }]);
  await it.passes();
  await it.finish(await it.inFlight());
  await set({ when_busy: "skip" });
  await group(["a", "a"]);
  await it.passes();
  t.is(await left(it), 1);
  await it.finish(await it.inFlight());
  t.deepEqual(await called(it), [{ total: 2, succeeded: 1, dropped: 1 }]);
  await it.passes();
  await it.finish(await it.inFlight());
  await set({ when_busy: "wait", max_pending: 1, when_full: "drop_oldest" });
  await group(["a"]);
  await it.stage("a");
  t.deepEqual(await called(it), [{ total: 1, dropped: 1 }]);
});

test("a job for which the backlog has no room counts as dropped from the beginning", async (t) => {
  const { it, group, set } = await world(t);
  await set({ max_pending: 1, when_full: "drop_newest" });
  const ids = await group(["a", "a"]);
  t.deepEqual([typeof ids[0], ids[1]], ["string", null]);
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await called(it), [{ total: 2, succeeded: 1, dropped: 1 }]);
});

test("a job whose key is remembered counts as dropped, and the next of the key does not", async (t) => {
  const { it, group, set } = await world(t);
  await set({ unique_for: 3600 });
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  await it.finish(await it.inFlight());
  await group(["a"], { jobKey: "k" });
  t.deepEqual(await called(it), [{ total: 1, dropped: 1 }]);
});

test("a newer job of the key takes a staged one's place, and an admitted one counts as replaced", async (t) => {
  const { it, group } = await world(t);
  const [id] = await group(["a"], { jobKey: "k" });
  t.deepEqual(await it.stage("b", { jobKey: "k" }), [id]);
  t.is(await left(it), 1);
  await it.passes();
  t.is(await left(it), 1);
  await it.stage("b", { jobKey: "k" });
  await it.passes();
  t.deepEqual(await called(it), [{ total: 1, replaced: 1 }]);
  t.is((await it.inFlight("b")).length, 1);
});

test("a job that takes another one's place counts in both groups", async (t) => {
  const { it, group } = await world(t);
  const [id] = await group(["a"], { jobKey: "k" });
  t.deepEqual(await group(["a"], { jobKey: "k" }), [id]);
  t.is(await members(it), 2);
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await called(it), [
    { total: 1, succeeded: 1 },
    { total: 1, succeeded: 1 },
  ]);
});

test("a job of a key that Graphile Worker gets meanwhile replaces the staged one", async (t) => {
  const { it, query, group } = await world(t);
  await group(["a"], { jobKey: "k" });
  await it.route();
  await query("select graphile_worker.add_job('p', '{\"key\": \"a\"}', job_key => 'k')");
  await it.admit();
  t.deepEqual(await called(it), [{ total: 1, replaced: 1 }]);
});

test("a worker without this package ends a job: a look or a sweep finds it", async (t) => {
  const { it, query, group, sweep } = await world(t);
  await group(["a", "b"]);
  await it.passes();
  const [gone, failed] = await it.inFlight();
  await query(DONE, [gone]);
  await query(FAIL, [failed]);
  await sweep();
  t.deepEqual(await called(it), [{ total: 2, gone: 1, failed: 1 }]);
});

test("a job whose slot was freed while it ran is followed in Graphile Worker", async (t) => {
  const { it, query, group, sweep } = await world(t);
  await group(["a", "b", "c"]);
  await it.passes();
  const [gone, failed, goesOn] = await it.inFlight();
  for (const job of [gone, failed, goesOn]) await fetchJob(it, job!);
  await it.release([gone!, failed!, goesOn!].map((job) => ({ job, ok: null })));
  t.is(await sweep(), 0);
  await query("select graphile_worker.force_unlock_workers(array['worker'])");
  await query(DONE, [gone]);
  await query(FAIL, [failed]);
  t.is(await sweep(), 2);
  t.is(await left(it), 1);
});

for (const read of ["between", "at the end"] as const) {
  test(`a retry that goes past the gates counts when it has ended, what happened is read ${read}`, async (t) => {
    const looks = async () => {
      if (read === "between") {
        t.is(await sweep(), 0);
        t.deepEqual(await called(it), []);
      }
    };
    const { it, query, group, sweep } = await world(t);
    await group(["a"]);
    await it.passes();
    const [job] = await it.inFlight();
    await fetchJob(it, job!);
    await failJob(it, job!, 0);
    await it.release([{ job: job!, ok: false, attempt: 1 }]);
    await looks();
    await fetchJob(it, job!, "w");
    const caught = await query(
      "select verdict, staged_id from dispatch_policy_internal._catch_unadmitted($1, 0, 2, 'w', null, $2, '{}', 'enforce', null)",
      [job, JSON.stringify(it.batch(["a"]))],
    );
    t.is(caught.rows[0].verdict, "admitted");
    await looks();
    await completeJob(it, job!);
    await it.release([job!]);
    t.deepEqual(await called(it), [{ total: 1, succeeded: 1 }]);
  });
}

test("unstaged jobs are followed in Graphile Worker, and adopted again", async (t) => {
  const { it, query, group, enable, sweep } = await world(t);
  await group(["a", "b", "c", "d"]);
  await it.route();
  await enable(false);
  await query("select dispatch_policy.unstage('p')");
  const { rows } = await query("select id from graphile_worker.jobs order by id");
  const [gone, failed, adopted, later] = rows.map(({ id }) => id);
  t.is(await sweep(), 0);
  await query(DONE, [gone]);
  await query(FAIL, [failed]);
  t.is(await sweep(), 2);
  await enable(true);
  await query("select dispatch_policy.adopt('p')");
  t.deepEqual((await query("select id from dispatch_policy.group_jobs order by id")).rows, [
    { id: adopted },
    { id: later },
  ]);
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await called(it), [{ total: 4, gone: 1, failed: 1, succeeded: 2 }]);
});

test("jobs of a policy that is off are followed in Graphile Worker", async (t) => {
  const { it, query, group, enable, sweep } = await world(t);
  await enable(false);
  const [gone, failed] = await group(["a", "b"]);
  t.is(await sweep(), 0);
  await query(DONE, [gone]);
  await query(FAIL, [failed]);
  await sweep();
  t.deepEqual(await called(it), [{ total: 2, gone: 1, failed: 1 }], "and so is the callback");
  t.is(await it.staged(), 0);
});

test("a copy that is copied counts in its original's place", async (t) => {
  const { it, query, group, enable, sweep } = await world(t, { gates: [concurrency(1)] });
  await enable(false);
  const [job] = await group(["a"]);
  await enable(true);
  await it.stage("a");
  await it.passes();
  await fetchJob(it, job!, "w");
  const caught = await query(
    "select verdict, staged_id from dispatch_policy_internal._catch_unadmitted($1, 0, 1, 'w', null, $2, '{}', 'enforce', null)",
    [job, JSON.stringify(it.batch(["a"]))],
  );
  t.is(caught.rows[0].verdict, "copied");
  await query(DONE, [job]);
  t.is(await sweep(), 0);
  await it.finish(await it.inFlight());
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await called(it), [{ total: 1, succeeded: 1 }]);
});

test("no jobs: the callback comes at once, and with nothing but its counts if it has no payload", async (t) => {
  const { it, query, group } = await world(t, { keyPath: "_group.id" });
  t.deepEqual(await group([], {}, { identifier: "p" }), []);
  t.deepEqual(await called(it), [{}]);
  t.deepEqual((await query("select payload from dispatch_policy.staged_jobs")).rows, [
    {
      payload: {
        _group: { id: "1", total: 0, succeeded: 0, failed: 0, removed: 0, dropped: 0, replaced: 0, gone: 0 },
      },
    },
  ]);
  await empty(t, it);
});

test("a callback has its options, and its times count from when it is added", async (t) => {
  const { it, query, group } = await world(t);
  const options = {
    queueName: "q",
    maxAttempts: 3,
    jobKey: "k",
    priority: 7,
    flags: ["mine"],
    wait: 60,
    expiresAfter: 30,
  };
  await group(["a"], {}, { ...THEN, ...options });
  await it.passes();
  await it.finish(await it.inFlight());
  await it.readEvents();
  const { rows } = await query(
    `select queue_name, max_attempts, job_key, priority, flags,
       extract(epoch from run_at - created_at)::int as wait, extract(epoch from expires_at - run_at)::int as expires
     from dispatch_policy.staged_jobs`,
  );
  const { wait, expires } = rows[0];
  t.like(rows[0], { queue_name: "q", max_attempts: 3, job_key: "k", priority: 7, flags: ["mine"] });
  t.true(wait > 50 && wait <= 60 && expires === 30, `${wait} ${expires}`);
});

test("a callback that cannot be added stops no release, and comes with a later sweep", async (t) => {
  const { it, query, group, set, sweep } = await world(t);
  await group(["a"]);
  await it.passes();
  const jobs = await it.inFlight();
  for (const full of ["reject", "drop_newest"]) {
    await set({ max_pending: 1, when_full: full });
    if (full === "reject") await it.stage("then");
    if (full === "reject") t.deepEqual(await it.finish(jobs), jobs);
    else await sweep();
    t.deepEqual(await called(it), []);
    const { rows } = await query("select jobs_left, error from dispatch_policy.groups");
    t.is(rows[0].jobs_left, 0);
    t.regex(rows[0].error, /backlog of policy '?p'? is full/);
  }
  t.deepEqual(await it.inFlight(), [], "its slot is free");
  await set({ max_pending: null });
  await sweep();
  t.deepEqual(await called(it), [{ total: 1, succeeded: 1 }]);
  await empty(t, it);
});

test("a callback whose job key is remembered comes once it is forgotten", async (t) => {
  const { it, query, group, set, sweep } = await world(t);
  await set({ unique_for: 3600 });
  await it.stage("a", { jobKey: "then" });
  await it.passes();
  await it.finish(await it.inFlight());
  await group(["a"], {}, { ...THEN, jobKey: "then" });
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await called(it), []);
  const { rows } = await query("select jobs_left, error from dispatch_policy.groups");
  t.is(rows[0].jobs_left, 0);
  t.regex(rows[0].error, /policy p remembers the job key then of the callback/);
  await query("select dispatch_policy.remove_job('then')");
  await sweep();
  t.deepEqual(await called(it), [{ total: 1, succeeded: 1 }]);
  await empty(t, it);
});

for (const [what, options] of [
  ["backlog is full", { max_pending: 1, when_full: "reject" }],
  ["job key is remembered", { unique_for: 3600 }],
] as const) {
  test(`no jobs, and the callback's ${what}: it comes with a later sweep`, async (t) => {
    const { it, query, group, set, sweep } = await world(t);
    await set({ unique_for: 3600 });
    await it.stage("a", { jobKey: "then" });
    await it.passes();
    await it.finish(await it.inFlight());
    await set({ unique_for: null });
    await it.stage("then");
    await set(options);
    await group([], {}, { ...THEN, jobKey: "then" });
    t.like((await query("select total, jobs_left from dispatch_policy.groups")).rows[0], {
      total: 0,
      jobs_left: 0,
    });
    t.deepEqual(await called(it), []);
    await set({ unique_for: null, max_pending: null });
    await sweep();
    t.deepEqual(await called(it), [{}]);
    await empty(t, it);
  });
}

test("a callback whose task has no policy any more goes to Graphile Worker", async (t) => {
  const { it, query, group } = await world(t, { otherTasks: ["other"] });
  await group(["a"], {}, { identifier: "other", expiresAfter: 5 });
  await it.table("policy_tasks").remove({ task_identifier: "other" });
  await it.passes();
  await it.finish(await it.inFlight());
  await it.readEvents();
  const { rows } = await query("select task_identifier from graphile_worker.jobs");
  t.deepEqual(rows, [{ task_identifier: "other" }]);
});

test("a group whose transaction rolls back never was", async (t) => {
  const { it, group } = await world(t);
  const app = await it.session();
  await app.query("begin");
  await group(["a"], { as: app });
  await group([], { as: app });
  await app.query("rollback");
  await empty(t, it);
  t.is(await it.staged(), 0);
});

test("add_jobs in SQL takes a callback, and refuses what nobody would see the end of", async (t) => {
  const { it, query } = await world(t, { otherTasks: ["other"] });
  const add = (task: string, then: string, flags = "null") =>
    query(
      `select id from dispatch_policy.add_jobs(array[('${task}', '{"key": "a"}', null, null, null, null, null, null)]
         ::graphile_worker.job_spec[], then_job => (${then}, null, null, null, null, null, ${flags})::graphile_worker.job_spec)`,
    );
  await add("p", `'other', '{"key": "r"}'`);
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await called(it), [{ total: 1, succeeded: 1 }]);
  const code = "DPARG";
  await t.throwsAsync(add("nobody", `'p', '{"key": "r"}'`), {
    code,
    message: /has a job of nobody, expected tasks that have a policy/,
  });
  await t.throwsAsync(add("p", "null, null"), {
    code,
    message: /then_job: identifier is null, expected the task/,
  });
  await t.throwsAsync(add("p", `'nobody', null`), { code, message: /has a job of nobody/ });
  await t.throwsAsync(add("p", `'p', '[]'`), {
    code,
    message: /then_job: the payload is of type array, expected an object/,
  });
  await t.throwsAsync(add("p", `'p', '{"other": 1}'`), {
    code: "DPKEY",
    message: /no string or number at partitionBy path key/,
  });
  await t.throwsAsync(add("p", `'p', '{"key": "r"}'`, "'{dispatch_policy:x}'"), {
    code,
    message: /then_job: flags that begin/,
  });
  t.is(await it.staged(), 1, "nothing else was staged");
});

test("an uninstall refuses while a group is open", async (t) => {
  const { it, query, group } = await world(t);
  await group(["a"]);
  await t.throwsAsync(query("select dispatch_policy.uninstall()"), {
    code: "DPUSE",
    message: /open job groups: 1, expected none: 1 \(1 jobs left, then p\); let workers/,
  });
  t.is(await it.staged(), 1);
});

test("of many jobs a sweep looks at some at a time", async (t) => {
  const { it, query, group } = await world(t);
  await group(Array(5).fill("a"));
  await it.passes();
  const jobs = await it.inFlight();
  await it.release(jobs.map((job) => ({ job, ok: null })));
  await query("select graphile_worker.complete_jobs($1)", [jobs.slice(1, 4)]);
  await it.readEvents();
  const pages: number[] = [];
  for (let after: string | null = "0"; after !== null; ) {
    const { rows } = await query("select * from dispatch_policy_internal._close_groups($1, 2)", [after]);
    pages.push(rows[0].closed);
    after = rows[0].staged_id;
  }
  t.deepEqual(pages, [1, 2, 0]);
  t.is(await left(it), 2);
});
