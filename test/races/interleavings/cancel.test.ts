// A cancel beside those who move jobs between staging and Graphile Worker: it must find a job that is under way.
import test from "ava";
import { concurrency, type Engine, engine } from "../../helpers/engine.ts";
import { failJob, fetchJob } from "../../helpers/native.ts";

const GATES = { gates: [concurrency(1)] };
const CANCEL = "select * from dispatch_policy.cancel(policy => 'p', by => 'ana')";

const ended = (it: Engine) =>
  it.number("select count(*)::int from graphile_worker.jobs where attempts >= max_attempts");

test("a job whose admission is not committed is cancelled once it is", async (t) => {
  const it = await engine(t, GATES);
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
  await it.stage(["a", "b"]);
  await it.passes();
  const [job] = (await it.inFlight("a")) as [string];
  await fetchJob(it, job);
  await failJob(it, job);
  // the look at staging waits for this row, and then ends without it
  await it.stage("b");
  const [holder, canceller] = [await it.session(), await it.session()];
  await holder.query("begin");
  await holder.query("select from dispatch_policy._private_staged_jobs for update");
  const cancelled = canceller.query(CANCEL);
  await it.waitsForLock(canceller);
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25 };
  t.deepEqual(await it.release([{ job, ok: false, attempt: 1, retry } as never]), [job]);
  await holder.query("commit");
  t.like((await cancelled).rows, [{ changed: 3 }]);
  t.deepEqual([await it.staged(), await ended(it)], [0, 2]);
});
