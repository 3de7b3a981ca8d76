// Releases beside others that look at the same rows.
import test from "ava";
import { concurrency, type Engine, engine, type Queryable } from "../../helpers/engine.ts";
import { admissionOf, failJob, fetchJob } from "../../helpers/native.ts";

/** A job is admitted again meanwhile, under the limits of partition b. */
async function goesByThoseOfB(world: Engine, job: string, as: Queryable): Promise<void> {
  const { limiter_ids } = await world.partition("b");
  await world.table("in_flight_jobs", as).set({ limiter_ids }, { job_id: job });
}

test("a release waits for a session that looks at the in-flight row: skipped, its slot would leak", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.waitsLong();
  await world.stage("a");
  await world.passes();
  const jobs = await world.inFlight();
  const looking = await world.session();
  await looking.query("begin");
  await world.table("in_flight_jobs", looking).lock();
  const releasing = await world.session();
  const release = world.release(jobs, releasing);
  await world.waitsForLock(releasing);
  await looking.query("rollback");

  t.deepEqual(await release, jobs);
  t.deepEqual(await world.inFlight(), []);
  t.is((await world.limiter("concurrency")).in_flight, 0);
});

test("a release waits for a session that changes the in-flight row, and deletes the changed row", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.waitsLong();
  await world.stage("a");
  await world.passes();
  const jobs = await world.inFlight();
  const recording = await world.session();
  await recording.query("begin");
  await world.table("in_flight_jobs", recording).set({ attempt: 1 }); // as the record of a start
  const releasing = await world.session();
  const release = world.release(jobs, releasing);
  await world.waitsForLock(releasing);
  await recording.query("commit");

  t.deepEqual(await release, jobs);
  t.deepEqual(await world.inFlight(), []);
  t.is((await world.limiter("concurrency")).in_flight, 0);
});

test("a release that waits for the in-flight row leaves the job if its limiters changed meanwhile", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.waitsLong();
  await world.stage(["a", "a", "b"]);
  await world.passes();
  const [job, other] = await world.inFlight("a");
  const admitting = await world.session();
  await admitting.query("begin");
  await goesByThoseOfB(world, job!, admitting);
  const releasing = await world.session();
  const release = world.release([job!, other!], releasing);
  await world.waitsForLock(releasing);
  await admitting.query("commit");

  t.deepEqual(await release, [other], "the release has not locked the limiters that the job occupies now");
  t.deepEqual(await world.inFlight("a"), [job]);
  t.deepEqual(await world.release([job!]), [job]);
});

test("ends of an earlier attempt beside the last one's, in one flush, free the slot once", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "a"]);
  await world.passes();
  const [job] = await world.inFlight();
  await world.table("in_flight_jobs").set({ attempt: 2, pool_id: "w" }, { job_id: job });
  const admission = (await admissionOf(world, job!))!;
  const late = { job: job!, admission, attempt: 1, ok: false };
  // for this one, the release takes the pool off the row before it frees the slot
  const retried = { ...late, retry: { attempt: 1, native: true, after: 0 } };
  t.deepEqual(await world.release([late, retried, { job: job!, admission, attempt: 2 }]), [job]);
  t.false((await world.inFlight()).includes(job!));
  t.is((await world.limiter("concurrency")).in_flight, 1);
  t.is(await world.wrongCounters(), 0);
});

test("two releases of the same job free its slot once", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.waitsLong();
  await world.stage(["a", "a"]);
  await world.passes();
  const [job] = await world.inFlight();
  const first = await world.session();
  const second = await world.session();
  await first.query("begin");
  await world.release([job!], first);
  const again = world.release([job!], second);
  await world.waitsForLock(second);
  await first.query("commit");

  t.deepEqual(await again, [job], "dealt with");
  t.is((await world.limiter("concurrency")).in_flight, 1);
});

test("releases of the same jobs in different order do not deadlock", async (t) => {
  const world = await engine(t, { gates: [concurrency(50)] });
  for (let round = 0; round < 20; round++) {
    await world.stage(["a", "b", "c", "d"].flatMap((key) => Array(5).fill(key)));
    await world.passes();
    const jobs = await world.inFlight();
    await Promise.all([
      world.release(jobs),
      world.release([...jobs].reverse()),
      world.release(jobs.slice(5)),
    ]);
    t.deepEqual(await world.inFlight(), []);
  }
  t.is(await world.wrongCounters(), 0);
});

test("a job whose limiters changed while its release waited stays for the next flush", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.waitsLong();
  await world.stage(["a", "b"]);
  await world.passes();
  const [job] = await world.inFlight("a");
  const other = await world.session();
  await other.query("begin");
  await world.table("limiters", other).lock();
  const releasing = await world.session();
  const release = world.release([job!], releasing);
  await world.waitsForLock(releasing);
  await goesByThoseOfB(world, job!, other);
  await other.query("commit");

  t.deepEqual(await release, []);
  t.deepEqual(await world.release([job!]), [job]);
});

test("a sweep waits for no release, whose jobs are as good as gone", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "b"]);
  await world.passes();
  const jobs = await world.inFlight();
  await world.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  const releasing = await world.session();
  await releasing.query("begin");
  t.deepEqual(await world.release([jobs[1]!], releasing), [jobs[1]]);
  const marked = "select max(marked) as n from dispatch_policy_internal._sweep_in_flight('1 hour')";
  t.is(await world.number(marked), 1, "the other");
  await releasing.query("rollback");
  t.is(await world.number(marked), 1, "it, now that it is free");
});

test("a job nobody holds is dealt with, and changes nothing", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("a");
  await world.passes();
  t.deepEqual(await world.release(["999999999"]), ["999999999"]);
  t.is((await world.limiter("concurrency")).in_flight, 1);
});

test("a flush so late that Graphile Worker retried the job by itself frees nothing and sets no back-off", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage("a");
  await world.passes();
  const [job] = await world.inFlight();
  // attempt 1 failed and was recorded, attempt 2 is running: only Graphile Worker's own statements do that
  await fetchJob(world, job!, "w");
  await failJob(world, job!, 0);
  await fetchJob(world, job!, "w");
  const late = { job: job!, ok: false, retry: { attempt: 1, native: true, after: 0 } };
  t.deepEqual(await world.release([late]), [job], "dealt with, not tried again");
  t.is((await world.limiter("concurrency")).in_flight, 1, "attempt 2 occupies the slot");

  const runAt = "select run_at from graphile_worker.jobs";
  await failJob(world, job!, 0);
  const before = await world.pool.query(runAt);
  await world.release([late]);
  t.deepEqual((await world.pool.query(runAt)).rows, before.rows);

  const hour = { job: job!, ok: false, retry: { attempt: 2, native: true, after: 3600 } };
  t.deepEqual(await world.release([late, hour]), [job]);
  t.is((await world.limiter("concurrency")).in_flight, 0);
  const { rows } = await world.pool.query(
    "select run_at > now() + interval '50 minutes' as later from graphile_worker.jobs",
  );
  t.true(rows[0].later);
});
