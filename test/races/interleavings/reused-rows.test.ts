// Graphile Worker gives the row of a waiting job to the next one of its key. Whoever has looked at the row, and waits for
// it then, finds another job there: which must be neither ended nor admitted in the place of the one that was there.
import test from "ava";
import { concurrency, type Engine, engine } from "../../helpers/engine.ts";
import { addPast, completeJob, failJob, fetchJob, rowOf, startJob } from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

const ROOMY = { gates: [concurrency(99)], batchSize: 99 };
const ONE = { gates: [concurrency(1)] };
const V2 = { key: "k", payload: { v: 2 } };

const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };

/** Ends a running job of this admission badly: it is parked, due after so many seconds. */
async function fail(it: Engine, job: string, after: number): Promise<void> {
  await failJob(it, job);
  await it.release([{ job, ok: false, attempt: 1, retry: { ...retry, after } } as never]);
}

/** A job of key k that has failed and is parked. */
async function parked(it: Engine, after = 0): Promise<string> {
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await fetchJob(it, id);
  await fail(it, id, after);
  return id;
}

/** Stages a second job of key k, as an application inside its transaction. */
async function stageV2(it: Engine, app: Awaited<ReturnType<Engine["session"]>>): Promise<void> {
  const batch = it.batch(["a"], { jobKey: "k" }) as { jobs: object[] };
  const jobs = batch.jobs.map((job) => ({ ...job, payload: V2.payload }));
  await app.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs }]),
  ]);
}

test("the sweep of replaced jobs leaves the next one of the key alone", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await it.pool.query("alter function dispatch_policy_internal._sweep_replaced set lock_timeout = 0"); // else it passes by
  const id = await parked(it);
  await it.stage("a", { jobKey: "k", runAt: new Date(Date.now() + 3_600_000) });
  await it.passes(2);
  await it.table("staged_jobs").remove(); // as a full backlog drops it
  const [app, sweeper] = [await it.session(), await it.session()];
  await app.query("begin");
  await addPast(it, { ...V2, as: app });
  const sweeping = sweeper.query("select dispatch_policy_internal._sweep_replaced()");
  await it.waitsForLock(sweeper);
  await app.query("commit");
  await sweeping;
  t.like(await rowOf(it, id), { attempts: 0, payload: V2.payload });
});

test("so does a removal of a parked one", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  const id = await parked(it, 60);
  const [app, operator] = [await it.session(), await it.session()];
  await app.query("begin");
  await addPast(it, { ...V2, as: app });
  const removing = operator.query(
    "select * from dispatch_policy.remove(ids => array(select id from dispatch_policy.staged_jobs))",
  );
  await it.waitsForLock(operator);
  await app.query("commit");
  await removing;
  t.like(await rowOf(it, id), { attempts: 0, payload: V2.payload });
});

test("so does a release that gives a failed one up", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await it.stage(Array(60).fill("a"));
  await it.stage("a", { jobKey: "k" });
  await it.passes(1, 99);
  const jobs = await it.inFlight();
  const keyed = (await it.pool.query("select id from graphile_worker.jobs where key = 'k'")).rows[0].id;
  for (const job of jobs) await fetchJob(it, job).then(() => failJob(it, job));
  const ended = jobs.map((job) => ({
    ...{ job, ok: false, attempt: 1 },
    retry: job === keyed ? { attempt: 1, giveUp: true } : retry,
  }));
  // it tries to park the others, which another transaction is at
  const [app, releasing] = [await it.session(), await it.session()];
  await app.query("begin");
  await workerTable(app).lock({ id: (its) => `${its} <> ${keyed}` });
  const released = it.release(ended, releasing);
  await it.waitsForLock(releasing);
  t.is(await addPast(it, V2), keyed, "in the same row");
  await app.query("commit");
  await released;
  t.like(await rowOf(it, keyed), { attempts: 0, payload: V2.payload });
});

test("a parked job that comes due as another takes its row: that one keeps its time", async (t) => {
  const it = await engine(t, ONE);
  await it.waitsLong();
  const id = await parked(it);
  await it.route();
  const [app, ticking] = [await it.session(), await it.session()];
  await app.query("begin");
  await app.query(
    "select graphile_worker.add_job('p', '{}', job_key => 'k', run_at => now() + interval '1 day', priority => 7)",
  );
  const tick = it.admit({ as: ticking });
  await Promise.race([it.waitsForLock(ticking), tick]);
  await app.query("commit");
  await tick;
  await it.passes(2);
  t.like(await rowOf(it, id), { later: true, priority: 7 });
});

test("and runs in no slot but its own partition's", async (t) => {
  const it = await engine(t, ONE);
  await it.waitsLong();
  const id = await parked(it);
  await it.stage("b");
  await it.route();
  const [app, ticking] = [await it.session(), await it.session()];
  await app.query("begin");
  await addPast(it, { key: "k", as: app });
  const tick = it.admit({ as: ticking });
  await Promise.race([it.waitsForLock(ticking), tick]);
  await app.query("commit");
  await tick;
  await it.passes(2);
  t.is((await it.inFlight("b")).length, 1, "b is full");
  const { verdict } = await startJob(it, await fetchJob(it, id), { partition: "b" });
  t.is(verdict, "copied");
});

for (const before of ["none", "an older one"]) {
  test(`a job that is copied as a newer one is being staged gives way to it, ${before} staged before`, async (t) => {
    const it = await engine(t, ONE);
    await it.waitsLong();
    await it.stage("a");
    await it.passes();
    if (before !== "none") await it.stage("a", { jobKey: "k" });
    const id = await addPast(it, { key: "k", payload: { v: 1 } });
    const job = await fetchJob(it, id);
    const [app, worker] = [await it.session(), await it.session()];
    await app.query("begin");
    await stageV2(it, app);
    const starting = startJob(it, job, { payload: { v: 1 }, as: worker });
    await it.waitsForLock(worker);
    await app.query("commit");
    t.is((await starting).verdict, "copied");
    await completeJob(it, id);
    const { rows } = await it.pool.query("select payload from dispatch_policy.staged_jobs");
    t.deepEqual(rows, [{ payload: V2.payload }]);
  });
}

test("a row that is removed and made anew during an admission is not overwritten", async (t) => {
  const it = await engine(t, ROOMY);
  await it.waitsLong();
  await addPast(it, { key: "k", payload: { v: 0 } });
  await it.stage("a", { jobKey: "k" });
  await it.route();
  const [app, ticking] = [await it.session(), await it.session()];
  await app.query("begin");
  await app.query("select graphile_worker.remove_job('k')");
  const id = await addPast(it, { ...V2, as: app });
  const tick = it.admit({ as: ticking });
  await Promise.race([it.waitsForLock(ticking), tick]);
  await app.query("commit");
  await tick;
  await it.passes(3);
  t.like(await rowOf(it, id), { payload: V2.payload });
});

test("an older staged job that was locked as a newer one was admitted does not take that one's retry", async (t) => {
  const it = await engine(t, ROOMY);
  const [v1] = await it.stage("b", { jobKey: "k", runAt: new Date(Date.now() + 60_000) });
  await it.stage("a");
  await it.passes();
  await it.finish(await it.inFlight());
  const app = await it.session();
  await app.query("begin");
  await app.query("select dispatch_policy.reschedule_jobs(array[$1::bigint], priority => 3)", [v1]);
  const id = await addPast(it, V2);
  t.is((await startJob(it, await fetchJob(it, id), { payload: V2.payload })).verdict, "admitted");
  await app.query("commit");
  await fail(it, id, 0);
  await it.pool.query("select dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => now())", [v1]);
  await it.passes(4);
  t.like(await rowOf(it, id), { payload: V2.payload });
});

test("a job admitted at its start, and parked, fails for good once its place is taken and left", async (t) => {
  const it = await engine(t, ROOMY);
  await it.stage("a");
  await it.passes();
  await it.finish(await it.inFlight());
  const id = await addPast(it, { key: "k" });
  t.is((await startJob(it, await fetchJob(it, id))).verdict, "admitted");
  await fail(it, id, 0);
  const [newer] = await it.stage("a", { jobKey: "k", runAt: new Date(Date.now() + 3_600_000) });
  await it.passes(2);
  t.like(await rowOf(it, id), { parked: true, attempts: 1 });
  await it.pool.query("select * from dispatch_policy.remove(ids => array[$1::bigint])", [newer]);
  t.is((await rowOf(it, id)).attempts, 25);
});

for (const [what, at] of [
  ["starts", "start"],
  ["waits", "admission"],
] as const) {
  test(`a newer native job with a copied flag, which ${what}, is not lost to an older staged one: ${at}`, async (t) => {
    const it = await engine(t, at === "start" ? ONE : ROOMY);
    await it.stage("a");
    await it.passes();
    const { flags } = (await it.pool.query("select flags from graphile_worker.jobs")).rows[0];
    await it.stage("a", { jobKey: "k" });
    const id = await addPast(it, { ...V2, flags: Object.keys(flags) });
    if (at === "admission") await it.passes(3);
    else {
      const { verdict } = await startJob(it, await fetchJob(it, id), { payload: V2.payload });
      t.is(verdict, "copied");
      await completeJob(it, id);
    }
    t.deepEqual(await jobsOfKey(it), [{ payload: V2.payload }]);
  });
}

for (const [flagOf, options] of [
  ["a job without a key", {}],
  ["the job of another key", { jobKey: "other" }],
] as const) {
  for (const at of ["start", "admission"] as const) {
    test(`nor is one in the row of an older job of its key, with the flag of ${flagOf}, admitted later: ${at}`, async (t) => {
      const it = await engine(t, ONE);
      await it.stage("a", { jobKey: "k" });
      await it.passes();
      const [id] = (await it.inFlight("a")) as [string];
      await fetchJob(it, id);
      await it.stage("a", { jobKey: "k", priority: 1 });
      await fail(it, id, 0);
      await it.stage("a", options);
      await it.passes(2);
      const [other] = (await it.inFlight("a")) as [string];
      const { flags } = await rowOf(it, other);
      t.is(await addPast(it, { ...V2, flags: Object.keys(flags) }), id);
      if (at === "admission") {
        await it.finish([other]);
        await it.passes(3);
      } else {
        const { verdict } = await startJob(it, await fetchJob(it, id), { payload: V2.payload });
        t.is(verdict, "copied");
        await completeJob(it, id);
      }
      t.deepEqual(await jobsOfKey(it), [{ payload: V2.payload }]);
    });
  }
}

/** Those that are staged, and those that Graphile Worker has. */
async function jobsOfKey(it: Engine): Promise<object[]> {
  const staged = await it.table("staged_jobs").all({ job_key: "k" });
  const native = await workerTable(it.pool).all({ key: "k" });
  return [...staged, ...native].map(({ payload }) => ({ payload }));
}
