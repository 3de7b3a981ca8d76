// A job of a group keeps its place in it, whatever others write to Graphile Worker's rows: copied flags, a raised revision.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, type EngineOptions, engine, share } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { addPast, completeJob, failJob, fetchJob, poolLives, requeue, startJob } from "../helpers/native.ts";

/** A group of one admitted job. `off`: it went to Graphile Worker while its policy was off. */
async function world(
  t: ExecutionContext,
  options: Partial<EngineOptions> = {},
  { jobKey, pools = [], off = false }: { jobKey?: string; pools?: string[]; off?: boolean } = {},
) {
  const it = await engine(t, { gates: [], keyPath: "key", ...options });
  for (const pool of pools) await poolLives(it, pool);
  const batch = it.batch(["a"], jobKey === undefined ? {} : { jobKey }) as { jobs: object[] };
  const jobs = batch.jobs.map((job) => ({ ...job, payload: { key: "a" } }));
  const enable = (enabled: boolean) =>
    it.pool.query("select dispatch_policy.switch_policy('p', $1)", [enabled]);
  if (off) await enable(false);
  const { rows } = await it.pool.query(
    "select id from dispatch_policy.enqueue_group($1, 'replace', null, $2)",
    [JSON.stringify([{ ...batch, jobs }]), JSON.stringify({ identifier: "p", payload: { key: "then" } })],
  );
  if (off) {
    await enable(true);
    return { it, job: rows[0].id as string };
  }
  await it.passes();
  const [job] = (await it.inFlight()) as [string];
  return { it, job };
}

/** Adds a job past the policy, with the flags of another one. */
async function addCopy(it: Engine, of: string): Promise<string> {
  const { rows } = await it.pool.query("select flags from graphile_worker.jobs where id = $1", [of]);
  return addPast(it, { payload: { key: "a" }, flags: Object.keys(rows[0].flags) });
}

/** The counts of the callbacks that were added. */
const called = (it: Engine) => it.groupCounts();

const sweep = async (it: Engine) => {
  await it.readEvents();
  return it.number("select closed from dispatch_policy_internal._close_groups()");
};

/** It runs, fails and is parked, or waits for Graphile Worker's own retry. */
async function fail(it: Engine, job: string, parks: boolean): Promise<void> {
  await fetchJob(it, job);
  await failJob(it, job);
  await it.release([{ job, ok: false, attempt: 1, ...(parks && { retry: RETRY }) }]);
}
const RETRY = { attempt: 1, revision: 0, after: 3600, task: "p" };

const native = (it: Engine, job: string) =>
  it.pool.query("select from graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now())", [job]);
const due = (it: Engine) =>
  it.pool.query(
    "select from dispatch_policy.reschedule_jobs(array(select id from dispatch_policy.staged_jobs), run_at => now())",
  );

test("a copy of a parked job that was retried by hand counts in its place", async (t) => {
  const { it, job } = await world(t, { gates: [concurrency(1)] });
  await fail(it, job, true);
  await native(it, job);
  await it.stage("a");
  await it.passes();
  t.is((await startJob(it, await fetchJob(it, job))).verdict, "copied");
  await completeJob(it, job);
  await it.finish(await it.inFlight());
  await it.passes();
  t.is(await sweep(it), 0);
  t.deepEqual(await called(it), []);
  await it.finish(await it.inFlight());
  t.like((await called(it))[0], { total: 1, succeeded: 1 });
});

for (const ending of ["succeeds", "fails for good", "is gone"] as const) {
  test(`a parked job that was retried by hand goes on when its staged row leaves, and ${ending}`, async (t) => {
    const { it, job } = await world(t);
    await fail(it, job, true);
    await due(it);
    await native(it, job);
    await it.passes();
    t.is(await it.staged(), 0);
    t.is(await sweep(it), 0);
    t.deepEqual(await called(it), []);
    const fetched = await fetchJob(it, job);
    if (ending === "succeeds") {
      t.is((await startJob(it, fetched)).verdict, "admitted");
      await it.finish([job]);
      t.like((await called(it))[0], { total: 1, succeeded: 1 });
      return;
    }
    if (ending === "is gone") await completeJob(it, job);
    else {
      await failJob(it, job);
      await it.pool.query("select from graphile_worker.permanently_fail_jobs(array[$1::bigint], 'why')", [
        job,
      ]);
    }
    t.is(await sweep(it), 1);
    t.like((await called(it))[0], { total: 1, ...(ending === "is gone" ? { gone: 1 } : { failed: 1 }) });
  });
}

for (const runs of [false, true])
  for (const [what, verb] of [
    ["removed", "dispatch_policy.remove(policy => 'p', partition => 'a')"],
    ["cancelled", "dispatch_policy.cancel(array(select id from dispatch_policy.staged_jobs))"],
    [
      "dropped",
      "dispatch_policy_internal._drop_staged(array(select id from dispatch_policy.staged_jobs), 'dropped')",
    ],
  ] as const) {
    test(`a parked job that was retried by hand counts at its end, although its staged row is ${what} ${runs ? "while it runs" : "before it runs"}`, async (t) => {
      const { it, job } = await world(t);
      await fail(it, job, true);
      await it.passes();
      await native(it, job);
      const start = async () => t.is((await startJob(it, await fetchJob(it, job))).verdict, "admitted");
      if (runs) await start();
      await inside(it.pool, `select ${verb}`);
      t.is(await it.staged(), 0);
      t.is(await sweep(it), 0);
      t.deepEqual(await called(it), []);
      if (!runs) await start();
      await completeJob(it, job);
      await it.finish([job]);
      t.like((await called(it))[0], { total: 1, succeeded: 1 });
    });
  }

for (const leaves of ["in a pass", "as its policy is unstaged"] as const) {
  const leave = async (it: Engine) => {
    if (leaves === "in a pass") await it.passes();
    else {
      await it.pool.query("select dispatch_policy.switch_policy('p', false)");
      await it.pool.query("select dispatch_policy.unstage('p')");
    }
  };

  for (const ending of ["still runs", "has just succeeded"] as const) {
    test(`a parked job that was retried by hand and ${ending} goes on when its staged row leaves ${leaves}`, async (t) => {
      const { it, job } = await world(t);
      await fail(it, job, true);
      await due(it);
      await native(it, job);
      const fetched = await fetchJob(it, job);
      const { verdict, admission } = await startJob(it, fetched);
      t.is(verdict, "admitted");
      if (ending === "has just succeeded") await completeJob(it, job);
      await leave(it);
      t.deepEqual([await it.staged(), await sweep(it), await called(it)], [0, 0, []]);
      if (ending === "still runs") await completeJob(it, job);
      await it.release([{ job, ok: true, attempt: fetched.attempts, admission: admission! }]);
      t.like((await called(it))[0], { total: 1, succeeded: 1 });
    });
  }

  test(`a parked job whose row somebody has completed is gone when its staged row leaves ${leaves}`, async (t) => {
    const { it, job } = await world(t);
    await fail(it, job, true);
    await due(it);
    await completeJob(it, job);
    await leave(it);
    t.like((await called(it))[0], { total: 1, gone: 1 });
  });

  test(`a parked job is replaced when its staged row leaves ${leaves}, and the next job of its key has its row`, async (t) => {
    const { it, job } = await world(t, {}, { jobKey: "k" });
    await fail(it, job, true);
    await due(it);
    t.is(await addPast(it, { key: "k", payload: { key: "a" } }), job);
    await leave(it);
    t.like((await called(it))[0], { total: 1, replaced: 1 });
  });
}

test("an adopted job is replaced by one of its key that Graphile Worker gets before the pass", async (t) => {
  const { it, job } = await world(t, {}, { jobKey: "k", off: true });
  await it.pool.query("select dispatch_policy.adopt('p')");
  t.deepEqual([await it.staged(), await it.inFlight()], [1, []]);
  t.not(await addPast(it, { key: "k", payload: { key: "a" } }), job);
  await it.passes();
  t.like((await called(it))[0], { total: 1, replaced: 1 });
});

for (const state of ["in flight", "parked", "waiting past the gates"] as const) {
  test(`a job with a copied flag that is rescheduled does not end the original: ${state}`, async (t) => {
    const { it, job } = await world(t);
    const copy = await addCopy(it, job);
    if (state !== "in flight") await fail(it, job, state === "parked");
    await it.pool.query("select from dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => now())", [
      copy,
    ]);
    await it.passes();
    t.true((await it.inFlight()).includes(copy));
    await it.finish([copy]);
    t.is(await sweep(it), 0);
    t.deepEqual(await called(it), []);
  });
}

test("a job with a copied flag that is copied does not take the place of the original", async (t) => {
  const { it, job } = await world(t, { gates: [concurrency(1)] });
  const copy = await addCopy(it, job);
  await fail(it, job, false);
  await it.stage("a");
  await it.passes();
  t.is((await startJob(it, await fetchJob(it, copy))).verdict, "copied");
  await completeJob(it, copy);
  await it.finish(await it.inFlight());
  await it.passes();
  await it.finish(await it.inFlight());
  t.is(await it.staged(), 0, "the copy has run");
  t.deepEqual(await called(it), []);
});

for (const unmanaged of ["enforce", "run"] as const) {
  test(`a job that another one may not replace keeps its place at its start: ${unmanaged}`, async (t) => {
    const { it, job } = await world(t, {}, { jobKey: "k" });
    await it.pool.query(
      "select graphile_worker.add_job('p', '{}', job_key => 'k', job_key_mode => 'unsafe_dedupe')",
    );
    t.is((await startJob(it, await fetchJob(it, job), { unmanaged })).verdict, "admitted");
    t.is(await sweep(it), 0);
    t.deepEqual(await called(it), []);
    await completeJob(it, job);
    await it.release([job]);
    t.like((await called(it))[0], { total: 1, succeeded: 1 });
  });
}

for (const [how, parks] of [
  ["under its limits", true],
  ["past them, and was admitted", false],
] as const) {
  test(`a job that a full pool requeues keeps its place: it was retried ${how}`, async (t) => {
    const { it, job } = await world(t, { gates: [share(2)] }, { pools: ["worker"] });
    await fail(it, job, parks);
    await due(it);
    await it.passes();
    const fetched = await fetchJob(it, job);
    const { admission, verdict } = await startJob(it, fetched);
    t.is(verdict, parks ? "known" : "admitted");
    // a while ago: until then fewer are admitted
    t.true(await requeue(it, fetched, admission, { now: new Date(Date.now() - 60_000) }));
    await completeJob(it, job);
    t.is(await sweep(it), 0);
    const { rows } = await it.pool.query("select id from graphile_worker.jobs");
    const [{ id: copy }] = rows;
    await due(it);
    await native(it, copy);
    await it.passes();
    t.deepEqual([await it.staged(), await sweep(it), await called(it)], [0, 0, []]);
    t.is((await startJob(it, await fetchJob(it, copy))).verdict, "admitted");
    await it.finish([copy]);
    t.like((await called(it))[0], { total: 1, succeeded: 1 });
  });
}

test("a parked job that was retried by hand has the same state in both views, while it waits and while it runs", async (t) => {
  const { it, job } = await world(t);
  await fail(it, job, true);
  const states = async () => {
    await it.readEvents();
    const { rows } = await it.pool.query(
      `select j.state, g.state as in_group from dispatch_policy.jobs j
       join dispatch_policy.group_jobs g on g.job_id = j.id where j.id = $1`,
      [job],
    );
    return Object.values(rows[0]);
  };
  t.deepEqual(await states(), ["parked", "parked"]);
  await native(it, job);
  await fetchJob(it, job);
  t.deepEqual(await states(), ["running", "running"]);
});
