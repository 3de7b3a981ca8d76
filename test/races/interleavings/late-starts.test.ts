// A worker was silent, or a job was unlocked by hand: what it asks about the job's start comes after others have the job.
import test from "ava";
import { concurrency, type Engine, engine } from "../../helpers/engine.ts";
import { addPast, fetchJob, poolDies, startJob } from "../../helpers/native.ts";

const ONE = { gates: [concurrency(1)] };

/** Takes the key off a job that is locked. */
const TAKEN = [
  "select graphile_worker.add_job('p', job_key => 'k')",
  "select graphile_worker.remove_job('k')",
];

for (const [whose, other, takesItsKey] of [
  ["another pool", "second", "select"],
  ["the same pool, in its next attempt,", "first", "select"],
  ["the same pool, and its key was added again,", "first", TAKEN[0]!],
] as const) {
  test(`a start that is asked for after ${whose} has the job changes nothing there`, async (t) => {
    const it = await engine(t, ONE);
    await it.stage("a", { jobKey: "k" });
    await it.stage("a");
    await it.passes();
    const [id] = (await it.inFlight()) as [string];
    const lost = await fetchJob(it, id, "first");
    await it.pool.query("select graphile_worker.force_unlock_workers('{first}')");
    t.like(await startJob(it, lost, { poolId: "first" }), { verdict: "reassigned" }, "nobody has it yet");
    const { admission } = await startJob(it, await fetchJob(it, id, other), { poolId: other });
    await it.pool.query(takesItsKey);
    t.like(await startJob(it, lost, { poolId: "first" }), { verdict: "reassigned", admission });
    await it.release([{ job: id, ok: true, admission, attempt: 2 } as never]);
    t.is(await it.passes(), 1, "the slot was the other's to free");
  });
}

for (const takesItsKey of TAKEN) {
  test(`an attempt keeps its job while a transaction that began before the fetch takes its key: ${takesItsKey}`, async (t) => {
    const it = await engine(t, { gates: [] });
    const app = await it.session();
    await app.query("begin; select now()"); // Graphile Worker writes this time
    const job = await fetchJob(it, await addPast(it, { key: "k" }), "first");
    await app.query(takesItsKey);
    await app.query("commit");
    t.is((await startJob(it, job, { poolId: "first" })).verdict, "admitted");
    t.is((await startJob(it, job, { poolId: "first" })).verdict, "known", "and again, as a recorded start");
  });
}

/** A sweep that takes the pool "first" for dead and unlocks its jobs, in this session. */
async function sweeps(it: Engine, as = it.pool as Pick<Engine["pool"], "query">) {
  return (await as.query("select * from dispatch_policy_internal._sweep_workers('judge')")).rows[0];
}

test("a start that is asked for while a sweep unlocks its job waits for the sweep, and does not come", async (t) => {
  const it = await engine(t, ONE);
  await it.stage("a");
  await it.passes();
  const [id] = (await it.inFlight()) as [string];
  const [sweep, worker] = [await it.session(), await it.session()];
  await poolDies(it, "first");
  const job = await fetchJob(it, id, "first");
  await sweep.query("begin");
  t.like(await sweeps(it, sweep), { pools: 1, jobs: 1 });
  const start = startJob(it, job, { poolId: "first", as: worker });
  await it.waitsForLock(worker);
  await sweep.query("commit");
  t.like(await start, { verdict: "reassigned" });
});

test("a job that is unlocked while it waits to be admitted takes no slot", async (t) => {
  const it = await engine(t, ONE);
  await it.waitsLong();
  await it.stage("a", { runAt: new Date(Date.now() + 3_600_000) }); // its limiter is there
  await it.route();
  const [holder, worker] = [await it.session(), await it.session()];
  await poolDies(it, "first");
  const job = await fetchJob(it, await addPast(it), "first");
  await holder.query("begin");
  await it.table("limiters", holder).lock();
  const start = startJob(it, job, { poolId: "first", as: worker });
  await it.waitsForLock(worker);
  t.like(await sweeps(it), { pools: 1, jobs: 1 });
  await holder.query("commit");
  t.like(await start, { verdict: "reassigned" });
  t.deepEqual(await it.inFlight(), []);
  t.is((await it.limiter("concurrency")).in_flight, 0);
});

test("a job that is unlocked while its copy waits to be staged leaves no copy beside the run of another pool", async (t) => {
  const it = await engine(t, ONE);
  await it.stage("a");
  await it.passes();
  const full = await it.inFlight();
  const [app, worker] = [await it.session(), await it.session()];
  await poolDies(it, "first");
  const id = await addPast(it, { key: "k" });
  const job = await fetchJob(it, id, "first");
  await app.query("begin");
  await it.stage("a", { jobKey: "k", as: app });
  const start = startJob(it, job, { poolId: "first", as: worker });
  await it.waitsForLock(worker);
  t.like(await sweeps(it), { pools: 1, jobs: 1 });
  await it.finish(full);
  const elsewhere = await startJob(it, await fetchJob(it, id, "second"), { poolId: "second" });
  t.is(elsewhere.verdict, "admitted");
  await app.query("rollback");
  t.is((await start).verdict, "reassigned");
  t.is(await it.staged(), 0);
});
