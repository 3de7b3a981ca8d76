// `whenRunning: "cancel"` beside those who admit, start and end the older job of the key.
import test from "ava";
import { concurrency, type Engine, type EngineOptions, engine, until } from "../../helpers/engine.ts";
import {
  addPast,
  completeJob,
  failJob,
  fetchJob,
  poolDies,
  poolLives,
  startJob,
} from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

const GATES: EngineOptions = { gates: [concurrency(5)], cancelsAfterSeconds: 0 };
const KEY = { jobKey: "k" };

/** The older job of the key runs. */
async function runs(it: Engine, poolId = "worker"): Promise<string> {
  await it.stage("a", KEY);
  await it.passes();
  const [job] = (await it.inFlight()) as [string];
  await fetchJob(it, job, poolId);
  return job;
}

/** Staged jobs, each with the run that it waits for. */
const waiting = async (it: Engine) =>
  (await it.table("staged_jobs").all()).map(({ waits_for, due }) => [waits_for && String(waits_for), due]);

const reasons = async (it: Engine) =>
  (await it.pool.query("select reason from dispatch_policy.staged_jobs order by id")).rows.map(
    ({ reason }) => reason,
  );

const cancelled = async (it: Engine) =>
  (
    await it.pool.query("select job_id from dispatch_policy.in_flight_jobs where cancelled_at is not null")
  ).rows.map(({ job_id }) => String(job_id));

const failure = (job: string) => ({
  ...{ job, ok: false, attempt: 1 },
  retry: { attempt: 1, task: "p", after: 0, maxAttempts: 25 },
});

test("scenario 46: the new job goes once the run has ended, by its success or its failure, and the run is not retried", async (t) => {
  for (const fails of [false, true]) {
    const it = await engine(t, GATES);
    const job = await runs(it);
    const [newer] = await it.stage("a", KEY);
    t.deepEqual(await waiting(it), [[job, false]]);
    t.deepEqual(await reasons(it), ["older_run"]);
    t.is(await it.passes(3), 0);
    if (fails) await failJob(it, job);
    else await completeJob(it, job);
    t.deepEqual(await it.release([fails ? failure(job) : job]), [job]);
    t.is(await it.passes(), 1);
    t.deepEqual(await waiting(it), []);
    t.deepEqual(
      (await it.table("in_flight_jobs").all()).map(({ staged_id }) => String(staged_id)),
      [String(newer)],
    );
    t.is(await it.wrongCounters(), 0);
    const left = await workerTable(it.pool).all({ id: job });
    t.deepEqual(
      left.map((row) => [row.attempts >= row.max_attempts, row.last_error]),
      fails ? [[true, `cancelled by job ${newer}: a newer job of its key was added (oops)`]] : [],
    );
  }
});

test("of a burst the last one waits, and the run is cancelled once", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  const [second] = await it.stage("a", KEY);
  for (let n = 0; n < 8; n++) t.deepEqual(await it.stage("a", KEY), [second]);
  t.deepEqual(await waiting(it), [[job, false]]);
  t.like((await it.table("in_flight_jobs").all())[0], { cancelled_by: `job ${second}` });
  await completeJob(it, job);
  await it.release([job], it.pool, { passesOn: true });
  t.is(await it.passes(), 1);
  t.is(await it.passes(), 0);
});

test("a job that no worker has fetched ends without running, and nobody waits for it", async (t) => {
  const it = await engine(t, GATES);
  const [older] = await it.stage("a", KEY);
  await it.passes();
  const [job] = (await it.inFlight()) as [string];
  const [newer] = await it.stage("a", KEY);
  t.deepEqual(await waiting(it), [[null, true]]);
  t.falsy(await fetchJob(it, job));
  t.is(await it.passes(), 1);
  const rows = await it.table("in_flight_jobs").all();
  t.deepEqual(
    rows.map(({ staged_id }) => String(staged_id)),
    [String(older), String(newer)],
  );
  t.is(await it.number("select count(*)::int from dispatch_policy_internal._sweep_in_flight('0', true)"), 1);
  t.like(await workerTable(it.pool).one({ id: job }), {
    last_error: `cancelled by job ${newer}: a newer job of its key was added`,
  });
});

test("a job that is fetched while the add looks is cancelled as a run", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a", KEY);
  await it.passes();
  const [job] = (await it.inFlight()) as [string];
  const [worker, adder] = [await it.session(), await it.session()];
  await worker.query("begin");
  await fetchJob(it, job, "worker", worker);
  const added = it.stage("a", { ...KEY, as: adder });
  await it.waitsForLock(adder);
  await worker.query("commit");
  await added;
  t.deepEqual(await waiting(it), [[job, false]]);
  t.deepEqual(await cancelled(it), [job]);
});

test("a job whose admission is not committed is cancelled once it is", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a", KEY);
  await it.route();
  const [pass, adder] = [await it.session(), await it.session()];
  await pass.query("begin");
  t.is((await it.admit({ as: pass })).admitted, 1);
  const added = it.stage("a", { ...KEY, as: adder });
  await it.waitsForLock(adder);
  await pass.query("commit");
  await added;
  t.deepEqual(await waiting(it), [[null, true]]);
  t.is((await cancelled(it)).length, 1);
  t.is(await it.number("select count(*)::int from graphile_worker.jobs where attempts >= max_attempts"), 1);
});

/** The older job has failed, and waits for its retry. */
async function parked(it: Engine): Promise<string> {
  const job = await runs(it);
  await failJob(it, job, 0);
  await it.release([failure(job)]);
  return job;
}

test("a job that waits for its retry leaves, and the new one gets its row", async (t) => {
  const it = await engine(t, GATES);
  const job = await parked(it);
  const [newer] = await it.stage("a", KEY);
  t.deepEqual(await waiting(it), [[null, true]]);
  t.is(await it.passes(2), 1);
  t.deepEqual(await it.inFlight(), [job]);
  t.like((await it.table("in_flight_jobs").all())[0], { staged_id: newer });
  t.is(await it.wrongCounters(), 0);
});

test("a retry whose admission is not committed is cancelled once it is", async (t) => {
  const it = await engine(t, GATES);
  const job = await parked(it);
  await it.route();
  const [pass, adder] = [await it.session(), await it.session()];
  await pass.query("begin");
  t.is((await it.admit({ as: pass })).admitted, 1);
  const added = it.stage("a", { ...KEY, as: adder });
  await it.waitsForLock(adder);
  await pass.query("commit");
  await added;
  t.deepEqual(await cancelled(it), [job]);
  t.is(await it.staged(), 1);
});

test("a retry is not admitted beside a new job that is not committed", async (t) => {
  const it = await engine(t, GATES);
  await parked(it);
  await it.route();
  const adder = await it.session();
  await adder.query("begin");
  const [newer] = await it.stage("a", { ...KEY, as: adder });
  t.is((await it.admit()).admitted, 0);
  await adder.query("commit");
  // the pass that found the retry locked has postponed the partition for a moment
  await until("the new job goes", async () => (await it.passes()) === 1);
  t.deepEqual(
    (await it.table("in_flight_jobs").all()).map(({ staged_id }) => String(staged_id)),
    [String(newer)],
  );
  t.is(await it.wrongCounters(), 0);
});

for (const passesOn of [false, true])
  test(`a release waits for the add that has cancelled its run, and lets its job go (passes on: ${passesOn})`, async (t) => {
    const it = await engine(t, GATES);
    await it.waitsLong();
    const job = await runs(it);
    const [releaser, adder] = [await it.session(), await it.session()];
    await adder.query("begin");
    await it.stage("a", { ...KEY, as: adder });
    await completeJob(it, job);
    const released = it.release([job], releaser, { passesOn });
    await it.waitsForLock(releaser);
    await adder.query("commit");
    // the small way does not wait for long, and the large one leaves the job for the next flush
    if ((await released).length === 0) t.deepEqual(await it.release([job], releaser, { passesOn }), [job]);
    t.deepEqual(await waiting(it), [[null, true]]);
    t.is(await it.passes(), 1);
  });

test("an add that finds the release of the run under way waits for it, and then for nobody", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  const [releaser, adder] = [await it.session(), await it.session()];
  await releaser.query("begin");
  t.deepEqual(
    await it.release(
      [failure(job)].map(({ retry: _, ...end }) => end),
      releaser,
    ),
    [job],
  );
  const added = it.stage("a", { ...KEY, as: adder });
  await it.waitsForLock(adder);
  await releaser.query("commit");
  await added;
  t.deepEqual(await waiting(it), [[null, true]]);
});

test("a release that finds the waiting job locked by a further add leaves it to that", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  await it.stage("a", KEY);
  const [holder, releaser, adder] = [await it.session(), await it.session(), await it.session()];
  // the row is locked as the insert of the further add has it, before that looks for runs
  await holder.query("begin");
  await it.table("staged_jobs", holder).lock();
  await completeJob(it, job);
  await releaser.query("begin");
  t.deepEqual(await it.release([job], releaser), [job]);
  await holder.query("rollback");
  const added = it.stage("a", { ...KEY, as: adder });
  await it.waitsForLock(adder);
  await releaser.query("commit");
  await added;
  t.deepEqual(await waiting(it), [[null, true]]);
  t.is(await it.passes(), 1);
});

test("a sweep finds a job whose run has ended while somebody had the job locked", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  await it.stage("a", KEY);
  const holder = await it.session();
  await holder.query("begin");
  await it.table("staged_jobs", holder).lock();
  await completeJob(it, job);
  t.deepEqual(await it.release([job]), [job]);
  await holder.query("rollback");
  t.is(await it.passes(2), 0);
  await it.pool.query("select dispatch_policy_internal._sweep_clock(now())");
  t.is(await it.passes(), 1);
});

test("a job that cancels nothing does not wait for the run that the one before it has cancelled", async (t) => {
  for (const [own, policy] of [
    [0, undefined],
    [undefined, 0],
  ]) {
    const it = await engine(t, { gates: [concurrency(5)], cancelsAfterSeconds: policy! });
    const job = await runs(it);
    await it.stage("a", { ...KEY, cancelsAfter: own! });
    t.deepEqual(await waiting(it), [[job, false]]);
    const adder = await it.session();
    await adder.query("begin");
    await it.stage("a", { ...KEY, as: adder, ...(policy === 0 && { cancelsAfter: null }) });
    await completeJob(it, job);
    t.deepEqual(await it.release([job]), [job], "it finds the job locked");
    await adder.query("commit");
    t.is(await it.passes(), 1);
  }
});

test("a sweep leaves a job alone whose run goes on", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  await it.stage("a", KEY);
  await it.pool.query("select dispatch_policy_internal._sweep_clock(now())");
  t.deepEqual(await waiting(it), [[job, false]]);
});

test("an add that rolls back has cancelled nothing", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  const adder = await it.session();
  await adder.query("begin");
  await it.stage("a", { ...KEY, as: adder });
  await adder.query("rollback");
  t.deepEqual(await cancelled(it), []);
  await completeJob(it, job);
  t.deepEqual(await it.release([job]), [job]);
});

test("a run whose worker is killed does not start again, and the new job goes", async (t) => {
  const it = await engine(t, GATES);
  await poolLives(it, "dead");
  const job = await runs(it, "dead");
  await it.stage("a", KEY);
  await poolDies(it, "dead");
  await it.pool.query("select dispatch_policy_internal._sweep_workers('judge')");
  t.is(await it.passes(2), 0);
  const again = await fetchJob(it, job);
  const [start] = (
    await it.pool.query(
      "select cancelled_by from dispatch_policy_internal._start_attempt($1, 0, 2, 'worker', null)",
      [again.id],
    )
  ).rows;
  t.regex(start.cancelled_by, /^job \d+$/);
  await failJob(it, job);
  await it.release([{ job, ok: false, attempt: 2, retry: { attempt: 2, giveUp: true } }]);
  t.is(await it.passes(), 1);
});

test("a job that comes past the policy is copied, and the copy waits for the run whose key it took", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  const native = await addPast(it, { key: "k" });
  t.like(await workerTable(it.pool).one({ id: job }), { key: null });
  const start = await startJob(it, await fetchJob(it, native));
  t.is(start.verdict, "copied");
  t.deepEqual(await waiting(it), [[job, false]]);
  t.deepEqual(await cancelled(it), [job]);
  await completeJob(it, native);
  // one more replaces the copy, and waits for the same run, which Graphile Worker does not have under the key any more
  await it.stage("a", KEY);
  t.deepEqual(await waiting(it), [[job, false]]);
  await completeJob(it, job);
  await it.release([job]);
  t.is(await it.passes(), 1);
});

test("a job from past the policy that starts after a newer one was added leaves to that", async (t) => {
  const it = await engine(t, GATES);
  const native = await addPast(it, { key: "k" });
  const [newer] = await it.stage("a", KEY);
  const start = await startJob(it, await fetchJob(it, native));
  t.like(start, { verdict: "copied", staged_id: newer });
  await completeJob(it, native);
  t.is(await it.passes(), 1);
});

test("a job from past the policy whose key a later one takes before it starts does not run", async (t) => {
  const it = await engine(t, GATES);
  const older = await fetchJob(it, await addPast(it, { key: "k" }));
  const native = await addPast(it, { key: "k" });
  t.is((await startJob(it, older)).verdict, "gone");
  t.is(await it.staged(), 0);
  t.is((await startJob(it, await fetchJob(it, native))).verdict, "copied");
  t.is(await it.passes(), 1);
});

test("nor does one that a staged job has known, whichever job has its key", async (t) => {
  const it = await engine(t, GATES);
  const older = await fetchJob(it, await addPast(it, { key: "k" }));
  await it.stage("a", KEY);
  await it.route();
  const [pass, adder] = [await it.session(), await it.session()];
  await pass.query("begin");
  t.is((await it.admit({ as: pass })).admitted, 1);
  const added = it.stage("a", { ...KEY, as: adder });
  await it.waitsForLock(adder);
  await pass.query("commit");
  await added;
  t.is((await startJob(it, older)).verdict, "gone");
  t.is(await it.staged(), 1);
});

test("a new job that finds one from past the policy also waits for the run behind that", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  await addPast(it, { key: "k" });
  await it.stage("a", KEY);
  t.deepEqual(await waiting(it), [[job, false]]);
});

test("an adopted job cancels the run, and waits for its end", async (t) => {
  const it = await engine(t, { ...GATES, keyPath: "k" });
  const job = await runs(it);
  await addPast(it, { key: "k", payload: { k: "a" } });
  const { rows } = await it.pool.query("select changed from dispatch_policy.adopt('p')");
  t.deepEqual(rows, [{ changed: 1 }]);
  t.deepEqual(await waiting(it), [[job, false]]);
  t.deepEqual(await cancelled(it), [job]);
});

test("only runs of the key and the policy are cancelled, and a job may say otherwise", async (t) => {
  const it = await engine(t, { ...GATES, otherTasks: ["q"] });
  const job = await runs(it);
  await it.stage("a", { jobKey: "another" });
  await it.stage("b");
  t.deepEqual(await cancelled(it), []);
  await it.stage("a", { ...KEY, cancelsAfter: null });
  t.deepEqual(await cancelled(it), []);
  await it.stage("a", { ...KEY, cancelsAfter: 7 });
  t.deepEqual(await cancelled(it), [job]);
  t.is((await it.table("in_flight_jobs").one({ job_id: job })).min_run, 7);
  await it.stage("a", { ...KEY, cancelsAfter: 20 });
  t.is((await it.table("in_flight_jobs").one({ job_id: job })).min_run, 7, "the shortest counts");
  t.like(
    (await it.pool.query("select * from dispatch_policy.cancel(ids => array[$1::bigint])", [job])).rows[0],
    {
      running: 1,
    },
  );
  t.is((await it.table("in_flight_jobs").one({ job_id: job })).min_run, null, "an operator does not wait");
});

test("a policy without the option cancels nothing", async (t) => {
  const it = await engine(t, { gates: [concurrency(5)] });
  await runs(it);
  await it.stage("a", KEY);
  t.deepEqual(await cancelled(it), []);
  t.deepEqual(await waiting(it), [[null, true]]);
});

test("a job that waits may be removed, moved and rescheduled", async (t) => {
  const it = await engine(t, GATES);
  const job = await runs(it);
  const [newer] = await it.stage("a", KEY);
  await it.pool.query("select dispatch_policy.move('p', 'a', to_partition => 'b')");
  t.deepEqual(await waiting(it), [[job, false]]);
  await it.pool.query("select dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => now())", [newer]);
  t.deepEqual(await waiting(it), [[null, true]]);
  await it.stage("a", KEY);
  await it.pool.query("select * from dispatch_policy.remove(job_key => 'k')");
  await completeJob(it, job);
  t.deepEqual(await it.release([job]), [job]);
  t.is(await it.staged(), 0);
  t.is(await it.wrongCounters(), 0);
});
