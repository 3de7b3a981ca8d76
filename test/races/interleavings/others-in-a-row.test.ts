// Slots that other hands touch between a sweep's look and its release, or that nobody frees.
import test from "ava";
import { makeEngine } from "../../../src/db/engine.ts";
import { concurrency as concurrencyGate, definePolicy } from "../../../src/index.ts";
import { concurrency, type Engine, engine, throttle, until } from "../../helpers/engine.ts";
import {
  addPast,
  admissionOf,
  completeJob,
  failJob,
  fetchJob,
  poolLives,
  rowOf,
  startJob,
} from "../../helpers/native.ts";
import { table } from "../../helpers/table.ts";
import { startWorker } from "../../helpers/worker.ts";

const ONE = { gates: [concurrency(1)] };
const MORE = [concurrency(1), concurrency(50, { name: "more", scope: "policy" })];

const countOf = async (it: Engine, key: string) => (await it.limiter("concurrency", key)).in_flight as number;

/** What a sweep finds at its second look. */
async function lookTwice(it: Engine): Promise<object[]> {
  await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
  const { rows } = await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
  return rows
    .filter(({ job_id }) => job_id !== null)
    .map(({ job_id, marked: _, ...rest }) => ({ job: job_id, ...rest }));
}

async function sweep(it: Engine): Promise<void> {
  await it.release((await lookTwice(it)) as never);
  await it.pool.query("select dispatch_policy_internal._sweep_counters()");
  await it.pool.query("select * from dispatch_policy_internal._sweep_partitions(clock_timestamp())");
}

/** A job of key k that is admitted, and waits in Graphile Worker. */
async function admitted(it: Engine, partition = "a"): Promise<string> {
  await it.stage(partition, { jobKey: "k" });
  await it.passes();
  return (await it.inFlight(partition))[0]!;
}

/** The worker pool that fetches jobs here lives. */
const lives = (it: Engine) => poolLives(it, "worker", 1);

for (const task of ["p", "plain"]) {
  test(`a native job for tomorrow of task ${task} that replaced an admitted one leaves its slot to others`, async (t) => {
    const it = await engine(t, ONE);
    await admitted(it);
    await it.pool.query(
      "select graphile_worker.add_job($1, '{}', job_key => 'k', run_at => now() + interval '1 day')",
      [task],
    );
    await it.stage("a");
    for (let n = 0; n < 3; n++) await sweep(it);
    t.is(await it.passes(2), 1);
  });
}

test("a sweep that found an admitted job postponed does not park the newer one that took its row", async (t) => {
  const it = await engine(t, ONE);
  const id = await admitted(it);
  await it.pool.query("select graphile_worker.reschedule_jobs($1, run_at => now() + interval '1 day')", [
    [id],
  ]);
  const found = await lookTwice(it);
  t.is(found.length, 1);
  t.is(await addPast(it, { key: "k", payload: { v: 2 } }), id, "in the same row");
  await it.release(found as never);
  t.like(await rowOf(it, id), { payload: { v: 2 }, parked: false });
});

test("a release by an operator that waits for a limiter does not park the newer job that took the row", async (t) => {
  const it = await engine(t, ONE);
  await it.waitsLong();
  await it.stage("b");
  const id = await admitted(it);
  await it.passes();
  t.is(await countOf(it, "b"), 1, "b is full");
  const [holder, operator] = [await it.session(), await it.session()];
  await holder.query("begin");
  await it.table("limiters", holder).lock();
  const releasing = operator.query("select * from dispatch_policy.release_slots($1)", [id]);
  await it.waitsForLock(operator);
  t.is(await addPast(it, { key: "k", payload: { v: 2 } }), id, "in the same row");
  await holder.query("commit");
  await releasing;
  await it.passes(2);
  const job = await fetchJob(it, id);
  const verdict = job && (await startJob(it, job, { partition: "b", payload: { v: 2 } })).verdict;
  t.is(verdict, "copied", "it is asked for room in its own partition");
});

test("a slot whose release the server lost is found by a sweep", async (t) => {
  const it = await engine(t, ONE);
  await lives(it);
  await it.stage(["a", "a"]);
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await fetchJob(it, id);
  const admission = await admissionOf(it, id);
  await completeJob(it, id);
  // the release commits, the server crashes before it is on disk: Graphile Worker's own end was committed before
  const client = await it.session();
  await client.query("begin");
  t.deepEqual(await it.release([{ job: id, attempt: 1, admission } as never], client), [id]);
  await client.query("rollback");
  for (let n = 0; n < 3; n++) await sweep(it);
  t.is(await it.passes(2), 1, "the next job");
});

for (const noted of [false, true]) {
  test(`a release ${noted ? "waits" : "does not wait"} for the disk, its start ${noted ? "" : "not "}noted`, async (t) => {
    const it = await engine(t, ONE);
    await it.stage("a");
    await it.passes();
    const [id] = (await it.inFlight("a")) as [string];
    const job = await fetchJob(it, id);
    if (noted) t.is((await startJob(it, job)).verdict, "known");
    const admission = await admissionOf(it, id);
    const client = await it.session();
    await client.query("set synchronous_commit = on"); // which the servers of tests are not
    let committed: unknown;
    // engine.release sends one statement in a transaction of its own: what it sets is seen before it commits
    const spy = {
      async query(text: string, values?: unknown[]) {
        await client.query("begin");
        const answer = await client.query(text, values);
        committed = (await client.query("show synchronous_commit")).rows[0].synchronous_commit;
        await client.query("commit");
        return answer;
      },
    };
    await makeEngine("dispatch_policy").release(spy, [
      { job: id, ok: true, attempt: 1, admission: admission!, lagMs: null, retry: null },
    ]);
    t.is(committed, noted ? "on" : "off");
    t.is(await countOf(it, "a"), 0);
  });
}

test("limits without a length of time stop their own partition alone", async (t) => {
  const it = await engine(t, { gates: [throttle(5)] });
  await it.stage("bad", { gates: [throttle(5, { per: 0 })] });
  await it.stage("good");
  t.is(await it.passes(2), 1);
});

test("the failure of an attempt that no longer has the slot opens no breaker", async (t) => {
  const it = await engine(t, { ...ONE, breaker: { failures: 1, withinSeconds: 60, cooldownSeconds: 60 } });
  await it.stage("a");
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await fetchJob(it, id);
  const first = await admissionOf(it, id);
  await it.pool.query("select graphile_worker.force_unlock_workers('{worker}')");
  const { admission } = await startJob(it, await fetchJob(it, id, "another"), { poolId: "another" });
  await completeJob(it, id);
  await it.release([
    { job: id, attempt: 1, admission: first, ok: false } as never,
    { job: id, attempt: 2, admission, ok: true } as never,
  ]);
  await it.route();
  t.is((await it.partition("a")).breaker_reason, null);
});

// the retry names the revision that the row had as the job that failed was fetched
for (const [what, retry] of Object.entries({
  "gives it up": { attempt: 1, revision: 0, giveUp: true },
  "retries it in an hour": { attempt: 1, revision: 0, task: "p", after: 3600, maxAttempts: 25 },
})) {
  test(`the late release of a failed job that ${what} leaves the plain job that has failed in its row since alone`, async (t) => {
    const it = await engine(t, ONE);
    const id = await admitted(it);
    const admission = await admissionOf(it, id);
    await fetchJob(it, id);
    await failJob(it, id);
    const ended = { job: id, ok: false, attempt: 1, admission, retry } as never;
    // before its release is flushed
    t.is(await addPast(it, { key: "k", task: "plain", payload: { v: 2 } }), id, "in the same row");
    await fetchJob(it, id);
    await it.release([ended]);
    await failJob(it, id);
    await it.release([ended]);
    t.like(await rowOf(it, id), { payload: { v: 2 }, attempts: 1, parked: false });
  });
}

test("a probe whose row got a job of another partition keeps nobody waiting", async (t) => {
  const it = await engine(t, { gates: [concurrency(9)] });
  await it.stage("a");
  await it.passes();
  await it.finish(await it.inFlight());
  await it.pool.query(`select dispatch_policy.hold(policy => 'p', partition => 'a', "for" => '0')`);
  await it.stage("a", { jobKey: "k" });
  await it.stage("a");
  t.is(await it.passes(3), 1, "the probe");
  const [id] = (await it.inFlight("a")) as [string];
  await it.stage("b", { jobKey: "k" });
  t.is(await it.passes(2), 1);
  t.deepEqual(await it.inFlight("b"), [id], "in the probe's row");
  await fetchJob(it, id); // it runs for hours
  for (let n = 0; n < 3; n++) await sweep(it);
  t.is(await it.passes(3), 1, "the next probe");
});

for (const [what, gates] of Object.entries({ "": ONE.gates, ", its limits new": MORE })) {
  test(`a job that is copied, and waits for an application's transaction, keeps nobody else waiting${what}`, async (t) => {
    const it = await engine(t, ONE);
    await it.stage("a");
    await it.passes();
    const job = await fetchJob(it, await addPast(it, { key: "k" }));
    const [app, worker] = [await it.session(), await it.session()];
    await app.query("begin");
    await it.stage("a", { jobKey: "k", as: app });
    await it.stage("c");
    t.is(await it.passes(2), 1, "the application's transaction alone keeps nobody waiting");
    const starting = worker.query(
      "select * from dispatch_policy_internal._catch_unadmitted($1, $2, 1, 'worker', null, $3, '{}', 'enforce', null)",
      [job.id, job.revision, JSON.stringify(it.batch(["a"], { jobKey: "k", gates }))],
    );
    await it.waitsForLock(worker);
    await it.stage("b");
    const admitted = await it.passes(3);
    await app.query("commit");
    t.is((await starting).rows[0].verdict, "copied");
    t.is(admitted, 1, "b's");
  });
}

test("a job told to come back later frees its slot with the next flush, where the first one met a lock", async (t) => {
  const it = await engine(t, ONE);
  const id = await admitted(it);
  const admission = await admissionOf(it, id);
  await fetchJob(it, id);
  await failJob(it, id);
  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25, refund: true, jobKey: "k" };
  const ended = { job: id, ok: false, attempt: 1, admission, retry } as never;
  const holder = await it.session();
  await holder.query("begin");
  await it.table("in_flight_jobs", holder).lock();
  const dealtWith = await it.release([ended]);
  t.deepEqual(dealtWith, []);
  await holder.query("commit");
  await it.release([ended]);
  t.is(await countOf(it, "a"), 0);
});

test("under a worker: a job that is given up takes no plain job with it that got its row meanwhile", async (t) => {
  const fails: (() => void)[] = [];
  const runs: number[] = [];
  const policy = definePolicy("p", {
    context: () => ({ key: "one" }),
    partitionBy: (ctx) => ctx.key,
    gates: [concurrencyGate({ max: 1 })],
    backoff: () => false,
  });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      p: () => new Promise((_, reject) => fails.push(() => reject(new Error("given up")))),
      async plain(_payload, { job }) {
        runs.push(job.attempts);
        if (job.attempts === 1) throw new Error("once");
      },
    },
  });
  await worker.utils.addJob("p", {}, { jobKey: "k" });
  await until("it runs", () => fails.length === 1);
  // somebody has its limiter locked: its release comes again and again
  const holder = await worker.pool.connect();
  t.teardown(() => holder.release());
  await holder.query("begin");
  await table(holder, "limiters").lock();
  fails[0]!();
  // before that, Graphile Worker would give the plain job a row of its own
  const failed = "select from graphile_worker.jobs where locked_at is null and last_error = 'given up'";
  await until("its failure is recorded", async () => (await worker.pool.query(failed)).rowCount === 1);
  await worker.pool.query("select graphile_worker.add_job('plain', '{}', job_key => 'k')");
  await until("the plain job has failed once", () =>
    worker.happened.some(({ event, error }) => event === "job:error" && error === "once"),
  );
  await holder.query("commit");
  await worker.everythingIsReleased();
  const { attempts } = await worker.row("select attempts from graphile_worker.jobs");
  t.deepEqual({ runs, attempts }, { runs: [1], attempts: 1 });
});

test("a policy that is switched off and on: the job in the row of an admitted one is not ended by that one's failure", async (t) => {
  const it = await engine(t, ONE);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight()) as [string];
  const admission = await admissionOf(it, id);
  await fetchJob(it, id);
  await failJob(it, id);
  await it.pool.query("select dispatch_policy.switch_policy('p', false)");
  await addPast(it, { key: "k", payload: { v: 2 } });
  t.is((await startJob(it, await fetchJob(it, id), { payload: { v: 2 } })).verdict, "ungoverned");
  const ended = {
    job: id,
    ok: false,
    attempt: 1,
    admission,
    retry: { attempt: 1, revision: 0, giveUp: true },
  } as never;
  await it.release([ended]);
  await failJob(it, id);
  await it.release([ended]);
  const { rows } = await it.pool.query("select attempts from graphile_worker.jobs");
  t.deepEqual(rows, [{ attempts: 1 }]);
});
