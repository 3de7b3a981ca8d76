// Graphile Worker's own verbs on jobs of a key: nothing is lost, nothing waits for ever.
import test from "ava";
import { concurrency, type Engine, engine } from "../../helpers/engine.ts";
import { addPast, failJob, fetchJob, rowOf, startJob } from "../../helpers/native.ts";

const ROOMY = { gates: [concurrency(99)], batchSize: 99 };

/** Asks Graphile Worker to add a job unless one of its key is there: which leaves that one as it is. */
const dedupe = (it: Engine) =>
  it.pool.query("select graphile_worker.add_job('p', '{}', job_key => 'k', job_key_mode => 'unsafe_dedupe')");

test("a job that waits parked for its admission is not lost to one that may not replace it", async (t) => {
  const it = await engine(t, ROOMY);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await it.pool.query("select * from dispatch_policy.release_slots($1)", [id]);
  t.like(await rowOf(it, id), { parked: true });
  await dedupe(it);
  await it.passes(3);
  await it.pool.query("select dispatch_policy_internal._sweep_replaced()");
  t.like(await rowOf(it, id), { parked: false, attempts: 0, last_error: null });
});

test("an admitted job is not rejected for one that may not replace it", async (t) => {
  const it = await engine(t, ROOMY);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await dedupe(it);
  const { verdict } = await startJob(it, await fetchJob(it, id), { unmanaged: "reject" });
  t.not(verdict, "copied");
});

test("an older staged job that is failed for good does not end a newer native one of its key", async (t) => {
  const it = await engine(t, ROOMY);
  const [older] = await it.stage("a", { jobKey: "k", runAt: new Date(Date.now() + 60_000) });
  const id = await addPast(it, { key: "k", payload: { v: 2 } });
  await it.pool.query("select * from dispatch_policy.permanently_fail_jobs(array[$1::bigint])", [older]);
  t.like(await rowOf(it, id), { payload: { v: 2 }, attempts: 0 });
});

test("an older staged job that is failed for good leaves a newer one that runs its key and its retries", async (t) => {
  const it = await engine(t, ROOMY);
  const [older] = await it.stage("a", { jobKey: "k", runAt: new Date(Date.now() + 60_000) });
  const id = await addPast(it, { key: "k", payload: { v: 2 } });
  await fetchJob(it, id);
  await it.pool.query("select * from dispatch_policy.permanently_fail_jobs(array[$1::bigint])", [older]);
  t.like(await rowOf(it, id), { attempts: 1 });
});

test("a forged flag takes no staged id from anybody", async (t) => {
  const it = await engine(t, ROOMY);
  const [last] = await it.stage("a");
  const next = BigInt(last!) + 1n;
  const id = await addPast(it, { flags: [`dispatch_policy:${next}@1`] });
  await it.pool.query("select dispatch_policy.reschedule_jobs(array[$1::bigint], priority => 1)", [id]);
  await t.notThrowsAsync(it.stage("a"));
});

for (const [what, park] of Object.entries({
  "released by an operator": async (it: Engine, id: string) => {
    await it.pool.query("select * from dispatch_policy.release_slots($1)", [id]);
  },
  "told to come back later": async (it: Engine, id: string) => {
    const job = await fetchJob(it, id);
    await failJob(it, id);
    const retry = {
      attempt: job.attempts,
      task: "p",
      after: 0,
      maxAttempts: 25,
      refund: true,
      jobKey: "k",
    };
    await it.release([{ job: id, ok: false, attempt: job.attempts, retry } as never]);
  },
})) {
  test(`a native job that keeps the time of one ${what} is not lost`, async (t) => {
    const it = await engine(t, ROOMY);
    await it.stage("a", { jobKey: "k" });
    await it.passes();
    const [id] = (await it.inFlight("a")) as [string];
    await park(it, id);
    t.like(await rowOf(it, id), { parked: true, attempts: 0 });
    await it.pool.query(
      `select graphile_worker.add_job('p', '{"v":2}', job_key => 'k', job_key_mode => 'preserve_run_at')`,
    );
    await it.passes(3);
    await it.pool.query("select dispatch_policy_internal._sweep_replaced()");
    t.like(await rowOf(it, id), { payload: { v: 2 }, parked: false, attempts: 0, last_error: null });
  });
}

test("an operator who reschedules the job in a parked one's row reschedules that job", async (t) => {
  const it = await engine(t, ROOMY);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await fetchJob(it, id);
  await failJob(it, id);
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25 };
  await it.release([{ job: id, ok: false, attempt: 1, retry } as never]);
  t.is(await addPast(it, { key: "k", payload: { v: 2 } }), id, "in its row");
  await it.pool.query(
    "select dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => now() + interval '1 day')",
    [id],
  );
  const { rows } = await it.pool.query(
    "select run_at > now() + interval '1 hour' as later from graphile_worker.jobs",
  );
  t.deepEqual(rows, [{ later: true }]);
});
