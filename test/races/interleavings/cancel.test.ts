// A cancel beside those who move jobs between staging and Graphile Worker: it must find a job that is under way.
import test from "ava";
import { concurrency, type Engine, engine, until } from "../../helpers/engine.ts";
import { admissionOf, failJob, fetchJob } from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

const GATES = { gates: [concurrency(1)] };
const CANCEL = "select * from dispatch_policy.cancel(policy => 'p', by => 'ana')";

const ended = (it: Engine) =>
  it.number("select count(*)::int from graphile_worker.jobs where attempts >= max_attempts");

test("a job whose admission is not committed is cancelled once it is", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage("a");
  await it.route();
  const [pass, canceller] = [await it.session(), await it.session()];
  await pass.query("begin");
  t.is((await it.admit({ as: pass })).admitted, 1);
  const cancelled = canceller.query(CANCEL);
  await it.waitsForLock(canceller);
  await pass.query("commit");
  t.like((await cancelled).rows, [{ matched: 1, changed: 1 }]);
  t.deepEqual([await it.staged(), await ended(it)], [0, 1]);
});

test("a job whose admission is rolled back is removed from staging", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage("a");
  await it.route();
  const [pass, canceller] = [await it.session(), await it.session()];
  await pass.query("begin");
  await it.admit({ as: pass });
  const cancelled = canceller.query(CANCEL);
  await it.waitsForLock(canceller);
  await pass.query("rollback");
  t.like((await cancelled).rows, [{ matched: 1, changed: 1 }]);
  t.is(await it.staged(), 0);
  t.is(await it.passes(2), 0);
  t.is(await it.wrongCounters(), 0);
});

test("a job that goes to another partition while it waits stays", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage("a");
  await it.route();
  const [mover, canceller] = [await it.session(), await it.session()];
  await mover.query("begin");
  await mover.query("select dispatch_policy.move('p', 'a', to_partition => 'b')");
  const cancelled = canceller.query("select * from dispatch_policy.cancel(policy => 'p', partition => 'a')");
  await it.waitsForLock(canceller);
  await mover.query("commit");
  t.like((await cancelled).rows, [{ matched: 0, changed: 0 }]);
  t.is(await it.staged(), 1);
});

test("a job that is staged again between the look at staging and that at jobs in flight is cancelled", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage(["a", "b"]);
  await it.passes();
  const [job] = (await it.inFlight("a")) as [string];
  await fetchJob(it, job);
  await failJob(it, job);
  // the look at staging waits for this row, and then ends without it
  await it.stage("b");
  const [holder, canceller] = [await it.session(), await it.session()];
  await holder.query("begin");
  await it.table("staged_jobs", holder).lock();
  const cancelled = canceller.query(CANCEL);
  await it.waitsForLock(canceller);
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25 };
  t.deepEqual(await it.release([{ job, ok: false, attempt: 1, retry } as never]), [job]);
  await holder.query("commit");
  t.like((await cancelled).rows, [{ changed: 3 }]);
  t.deepEqual([await it.staged(), await ended(it)], [0, 2]);
});

/** A job of a runs, and has just failed in Graphile Worker. */
async function failed(it: Engine): Promise<{ job: string; end: object }> {
  await it.stage("a");
  await it.passes();
  const [job] = (await it.inFlight("a")) as [string];
  await fetchJob(it, job);
  await failJob(it, job);
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25 };
  return { job, end: { job, ok: false, attempt: 1, retry } };
}

test("a cancel beside a release that is not committed waits, and finds the job staged again", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  const { job, end } = await failed(it);
  const [releaser, canceller] = [await it.session(), await it.session()];
  await releaser.query("begin");
  t.deepEqual(await it.release([end as never], releaser), [job]);
  const cancelled = canceller.query(CANCEL);
  await it.waitsForLock(canceller);
  await releaser.query("commit");
  t.like((await cancelled).rows, [{ matched: 1, changed: 1 }]);
  t.deepEqual([await it.staged(), await ended(it), (await it.inFlight()).length], [0, 1, 0]);
});

test("a release beside a cancel that is not committed leaves the job for the next flush, which ends it", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a");
  await it.passes();
  const [job] = (await it.inFlight("a")) as [string];
  await fetchJob(it, job);
  const canceller = await it.session();
  await canceller.query("begin");
  t.like((await canceller.query(CANCEL)).rows, [{ matched: 1, changed: 1, running: 1 }]);
  await failJob(it, job);
  const retry = { attempt: 1, task: "p", after: 0, maxAttempts: 25 };
  const end = { job, ok: false, attempt: 1, retry };
  t.deepEqual(await it.release([end as never]), []);
  t.deepEqual([await it.staged(), (await it.inFlight()).length], [0, 1]);
  await canceller.query("commit");
  t.deepEqual(await it.release([end as never]), [job]);
  t.deepEqual([await it.staged(), await ended(it), (await it.inFlight()).length], [0, 1, 0]);
  t.is(await it.wrongCounters(), 0);
});

test("a job that a worker fetches while a cancel is about to fail it is marked", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage("a");
  await it.passes();
  const [job] = (await it.inFlight("a")) as [string];
  const [worker, canceller] = [await it.session(), await it.session()];
  await worker.query("begin");
  await fetchJob(it, job, "worker", worker);
  const cancelled = canceller.query(CANCEL);
  await it.waitsForLock(canceller);
  await worker.query("commit");
  t.like((await cancelled).rows, [{ matched: 1, changed: 1, running: 1 }]);
  t.is(await ended(it), 0);
});

test("a late end of the attempt before does not end a cancelled job for the next one", async (t) => {
  const it = await engine(t, GATES);
  const { job } = await failed(it);
  const first = await admissionOf(it, job);
  await it.pool.query("select graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now())", [job]);
  const { attempts, revision } = await fetchJob(it, job, "other");
  await it.pool.query("select dispatch_policy_internal._start_attempt($1, $2, $3, 'other', null)", [
    job,
    revision,
    attempts,
  ]);
  await it.pool.query(CANCEL);
  const retry = { attempt: 1, task: "p", after: 0, maxAttempts: 25 };
  await it.release([{ job, ok: false, admission: first, attempt: 1, retry } as never]);
  t.deepEqual([await ended(it), (await it.inFlight()).length], [0, 1], "it runs");
});

test("a release that has looked at the mark makes a cancel wait with its own", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage(["a", "b"]);
  await it.passes();
  const [[job], [other]] = [await it.inFlight("a"), await it.inFlight("b")] as [[string], [string]];
  await fetchJob(it, job);
  await it.table("staged_jobs").before("insert", "perform pg_advisory_xact_lock(1)");
  const [pauser, holder, canceller] = [await it.session(), await it.session(), await it.session()];
  const releaser = await it.session();
  await pauser.query("select pg_advisory_lock(1)");
  await holder.query("begin");
  await workerTable(holder).lock({ id: other });
  const cancelled = canceller.query(CANCEL);
  await it.waitsForLock(canceller); // it has seen that the job runs
  await failJob(it, job);
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25 };
  const released = it.release([{ job, ok: false, attempt: 1, retry } as never], releaser);
  await it.waitsForLock(releaser); // it has seen no mark, and stages the job
  await holder.query("rollback");
  await until("the cancel waits for the release", () =>
    it
      .number("select ($2 = any(pg_blocking_pids($1)))::int", [canceller.pid, releaser.pid])
      .then((n) => n === 1),
  );
  await pauser.query("select pg_advisory_unlock(1)");
  t.deepEqual(await released, [job]);
  t.like((await cancelled).rows, [{ matched: 2, changed: 2 }]);
  t.deepEqual([await it.staged(), await ended(it), (await it.inFlight("a")).length], [0, 2, 0]);
});

test("a second look does not wait for a pass that waits for what the first look has marked", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage("a", { jobKey: "k" });
  await it.stage("b");
  await it.passes();
  const [[failing], [other]] = [await it.inFlight("a"), await it.inFlight("b")] as [[string], [string]];
  await fetchJob(it, failing);
  const pause = "perform pg_advisory_xact_lock(1)";
  await workerTable(it.pool).before(
    "update",
    `if old.id = ${failing} and old.locked_at is null then ${pause}; end if`,
  );
  const [pauser, holder, canceller, pass] = await Promise.all(Array.from({ length: 4 }, () => it.session()));
  await pauser!.query("select pg_advisory_lock(1)");
  await holder!.query("begin");
  await workerTable(holder!).lock({ id: other });
  let isDone = false;
  const cancelled = canceller!.query(CANCEL).finally(() => {
    isDone = true;
  });
  await it.waitsForLock(canceller!); // the first look has been at staging, and has seen that the job of a runs
  await failJob(it, failing);
  await it.stage("c", { jobKey: "k" });
  await it.route();
  const passed = it.admit({ as: pass! });
  await it.waitsForLock(pass!); // it has locked the staged job, and is about to give it the row of the failed one
  await holder!.query("rollback");
  await until("the cancel is through, or waits for the pass", async () => {
    const n = await it.number("select ($2 = any(pg_blocking_pids($1)))::int", [canceller!.pid, pass!.pid]);
    return isDone || n === 1;
  });
  await pauser!.query("select pg_advisory_unlock(1)");
  t.is((await passed).admitted, 1);
  t.like((await cancelled).rows, [{ changed: 1, more: true }]);
  t.like((await it.pool.query(CANCEL)).rows, [{ changed: 1, more: false }]);
  t.deepEqual([await it.staged(), await ended(it)], [0, 2]);
});
