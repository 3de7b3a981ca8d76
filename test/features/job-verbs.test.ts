// Graphile Worker's own verbs for single jobs, by staged ids and by its own.
import test from "ava";
import type { DbJob } from "graphile-worker";
import { concurrency, definePolicy } from "../../src/index.ts";
import { engine } from "../helpers/engine.ts";
import { type Ctx, type Scenario, scenario } from "../helpers/scenario.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker } from "../helpers/worker.ts";

/** What is returned of a job, but for its id and the times that differ from run to run. */
function told([job, ...more]: DbJob[]): Partial<DbJob> | undefined {
  if (!job || more.length > 0) return undefined;
  const { payload, priority, attempts, max_attempts, last_error, key, locked_at, locked_by, is_available } =
    job;
  return { payload, priority, attempts, max_attempts, last_error, key, locked_at, locked_by, is_available };
}

const likeAdded = {
  ...{ payload: { key: "k" }, priority: 2, attempts: 0, max_attempts: 7, last_error: null, key: "one" },
  ...{ locked_at: null, locked_by: null, is_available: true },
};

const spec = { priority: 2, maxAttempts: 7, jobKey: "one" };

async function graphileJob(it: Scenario) {
  const [job] = await it.rows("select * from graphile_worker.jobs where key = 'one'");
  return job;
}

test("the verbs return jobs in Graphile Worker's form, staged or admitted", async (t) => {
  const it = await scenario(t);
  const staged = await it.utils.addJob("p", { key: "k" }, spec);
  const at = new Date(Date.now() + 60_000);
  const moved = await it.utils.rescheduleJobs([staged.id], { runAt: at, priority: 5 });
  t.is(moved[0]?.id, staged.id);
  t.deepEqual(moved[0]?.run_at, at);
  t.deepEqual(told(moved), { ...likeAdded, priority: 5 });
  t.deepEqual(told(await it.utils.completeJobs([staged.id])), { ...likeAdded, priority: 5 });

  const again = await it.utils.addJob("p", { key: "k" }, spec);
  await it.tickNow();
  const later = await it.utils.rescheduleJobs([again.id], { priority: 6, maxAttempts: 8 });
  t.deepEqual(told(later), { ...likeAdded, priority: 6, max_attempts: 8 });
  const job = await graphileJob(it);
  t.deepEqual([job.id, job.priority, job.max_attempts], [later[0]?.id, 6, 8]);
  const failed = await it.utils.permanentlyFailJobs([again.id], "not needed");
  t.like(told(failed), { attempts: 8, last_error: "not needed", is_available: false });
  t.deepEqual(told(await it.utils.completeJobs([job.id]))?.payload, { key: "k" });
});

for (const [verb, args] of [
  ["complete_jobs", ""],
  ["permanently_fail_jobs", ""],
  ["reschedule_jobs", ", priority => 4"],
] as const) {
  test(`${verb} finds a job that is being admitted`, async (t) => {
    const it = await engine(t, { gates: [] });
    await it.stage("a");
    await it.route();
    const [admitting, changing] = [await it.session(), await it.session()];
    const id = await it.number("select id from dispatch_policy.staged_jobs");
    await admitting.query("begin");
    await admitting.query("select dispatch_policy.tick($1)", [it.policy]);
    const changed = changing.query(`select id from dispatch_policy.${verb}(array[$1::bigint]${args})`, [id]);
    await it.waitsForLock(changing);
    await admitting.query("commit");
    t.is((await changed).rows.length, 1);
    const [job] = (await it.pool.query("select priority, attempts, max_attempts from graphile_worker.jobs"))
      .rows;
    if (verb === "complete_jobs") t.is(job, undefined);
    else if (verb === "reschedule_jobs") t.is(job.priority, 4);
    else t.is(job.attempts, job.max_attempts);
  });
}

test("failing a staged job for good hands it to Graphile Worker as failed", async (t) => {
  const it = await scenario(t);
  const { id } = await it.utils.addJob("p", { key: "k" }, spec);
  const failed = await it.utils.permanentlyFailJobs([id], "not needed");
  t.like(told(failed), { attempts: 7, last_error: "not needed", payload: { key: "k" } });
  t.is(failed[0]?.id, (await graphileJob(it)).id);
  t.is(await it.staged(), 0);
  t.is((await it.rows("select state from dispatch_policy.jobs"))[0].state, "failed");
});

for (const by of ["its staged id", "Graphile Worker's id"] as const) {
  test(`a job that waits for its retry is rescheduled by ${by}, and passes its gates`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })], backoff: () => "1 hour" });
    const hands = await it.hands();
    const { id } = await it.utils.addJob("p", { key: "k" }, spec);
    await it.tickNow();
    await hands.end(1, "badly");
    const parked = await graphileJob(it);
    const [shown] = await it.rows("select * from dispatch_policy.jobs where id = $1", [parked.id]);
    const { state, policy, partition, staged_id, priority } = shown;
    t.deepEqual([state, policy, partition, staged_id, priority], ["parked", "p", "k", id, 2]);
    await it.stage("1@k");
    t.is((await it.tickNow()).admitted, 1, "another one takes the slot");

    const at = new Date();
    const target = by === "its staged id" ? id : parked.id;
    const options = { runAt: at, priority: -3, attempts: 0, maxAttempts: 9 };
    const moved = await it.utils.rescheduleJobs([target], options);
    t.like(told(moved), { priority: -3, attempts: 0, max_attempts: 9 });
    t.deepEqual([moved[0]?.id, moved[0]?.run_at], [parked.id, at]);
    t.like(await graphileJob(it), { attempts: 0, max_attempts: 9, priority: 32767 }, "still parked");
    t.is((await it.tickNow()).admitted, 0, "the slot is taken");
    await hands.end(1);
    t.is((await it.tickNow()).admitted, 1);
  });
}

test("a job is rescheduled before its partition is routed", async (t) => {
  const it = await scenario(t);
  const [job] = await it.stage("1@k", {}, { runAt: new Date(Date.now() + 3_600_000) });
  await it.utils.rescheduleJobs([job?.id ?? ""], { runAt: new Date() });
  t.is((await it.tickNow()).admitted, 1);
});

test("a staged job that is rescheduled to now starts without a heartbeat", async (t) => {
  const policy = definePolicy("p", { partitionBy: "k", gates: [concurrency({ max: 1 })] });
  const worker = await startWorker(t, { policies: [policy], tasks: { p: () => {} }, preset: NO_HEARTBEAT });
  const { id } = await worker.utils.addJob(policy, { k: "a" }, { runAt: new Date(Date.now() + 3_600_000) });
  await until("the loop waits for its time", () =>
    worker.row("select from dispatch_policy.partitions where eligible_at > now()"),
  );
  await worker.utils.rescheduleJobs([id], { runAt: new Date() });
  await worker.sees("job:success");
  t.pass();
});

test("a job is rescheduled to a better priority", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  const [, second] = await it.stage("3@k");
  await it.utils.rescheduleJobs([second?.id ?? ""], { priority: -5 });
  t.is((await it.tick()).admitted, 1);
  t.deepEqual(
    (await it.inFlight()).map((job) => job.staged_id),
    [second?.id],
  );
});

test("a parked job with no attempts on it, added again with its time kept, runs", async (t) => {
  const it = await scenario(t, { backoff: () => "1 hour" });
  const hands = await it.hands();
  const { id } = await it.utils.addJob("p", { key: "k" }, spec);
  await it.tickNow();
  await hands.end(1, "badly");
  await it.utils.rescheduleJobs([id], { attempts: 0 });
  await it.utils.addJob("p", { key: "k" }, { ...spec, jobKeyMode: "preserve_run_at" });
  t.is((await it.tickNow()).admitted, 1);
  await hands.end(1);
  t.is(await graphileJob(it), undefined);
});
