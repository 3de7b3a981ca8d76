// Looks at a row of Graphile Worker that said too little about whose job it has: the next one of its key, or one that was
// deduplicated against it.
import test, { type ExecutionContext } from "ava";
import { concurrency as concurrencyGate, definePolicy } from "../../../src/index.ts";
import { concurrency, type Engine, engine, until } from "../../helpers/engine.ts";
import { addPast, admissionOf, failJob, fetchJob, rowOf, startJob } from "../../helpers/native.ts";
import { table } from "../../helpers/table.ts";
import { startWorker } from "../../helpers/worker.ts";

const ONE = { gates: [concurrency(1)] };

/** A job of key k that is admitted, and waits in Graphile Worker. */
async function admitted(it: Engine): Promise<string> {
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  return (await it.inFlight("a"))[0]!;
}

/** A job of key k that runs, fails with this retry, and is deduplicated against meanwhile. */
async function dedupedAndFailed(it: Engine, retry: object): Promise<string> {
  const id = await admitted(it);
  const job = await fetchJob(it, id);
  const admission = await admissionOf(it, id);
  await it.pool.query(
    "select graphile_worker.add_job('p', '{}', job_key => 'k', job_key_mode => 'unsafe_dedupe')",
  );
  await failJob(it, id);
  await it.release([
    {
      job: id,
      ok: false,
      attempt: 1,
      admission,
      retry: { attempt: 1, revision: job.revision, ...retry },
    } as never,
  ]);
  return id;
}

test("a failed job that is given up ends, although another was deduplicated against it while it ran", async (t) => {
  const it = await engine(t, ONE);
  const id = await dedupedAndFailed(it, { giveUp: true });
  const { attempts, max_attempts } = await rowOf(it, id);
  t.is(attempts, max_attempts, "Graphile Worker does not run it again");
});

test("a failed job waits for its policy's back-off, although another was deduplicated against it while it ran", async (t) => {
  const it = await engine(t, ONE);
  const id = await dedupedAndFailed(it, { task: "p", after: 3600, maxAttempts: 25 });
  t.like(await rowOf(it, id), { parked: true });
  t.is(await it.staged("a"), 1);
});

const REJECTED = "select count(*)::int from dispatch_policy.staged_jobs where retry_at = 'infinity'";

test("a retry is not rejected as added past its policy, although another was deduplicated against it while it ran", async (t) => {
  const it = await engine(t, ONE);
  const id = await dedupedAndFailed(it, { task: "p", after: 0, maxAttempts: 25 });
  if (!(await rowOf(it, id)).parked)
    await it.pool.query("select graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now())", [id]);
  await it.passes(2);
  await startJob(it, await fetchJob(it, id), { unmanaged: "reject" });
  t.is(await it.number(REJECTED), 0);
});

test("a retry is not rejected as added past its policy, although its slot was freed while it ran", async (t) => {
  const it = await engine(t, ONE);
  const id = await admitted(it);
  const job = await fetchJob(it, id);
  const admission = await admissionOf(it, id);
  await it.pool.query("select * from dispatch_policy.release_slots($1)", [id]); // as slotTimeout does
  await failJob(it, id, 0);
  const retry = { attempt: 1, revision: job.revision, task: "p", after: 0, maxAttempts: 25 };
  await it.release([{ job: id, ok: false, attempt: 1, admission, retry } as never]);
  await startJob(it, await fetchJob(it, id), { unmanaged: "reject" });
  t.is(await it.number(REJECTED), 0);
});

test("a sweep does not count the failure of a plain job in an admitted one's row for the breaker", async (t) => {
  const it = await engine(t, { ...ONE, breaker: { failures: 1, withinSeconds: 60, cooldownSeconds: 60 } });
  const id = await admitted(it);
  t.is(await addPast(it, { key: "k", task: "plain" }), id, "in the same row");
  await fetchJob(it, id); // by a worker without this package
  await failJob(it, id, 60);
  await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
  const { rows } = await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
  const found = rows
    .filter(({ job_id }) => job_id !== null)
    .map(({ job_id, marked: _, ...rest }) => ({ job: job_id, ...rest }));
  t.is(found.length, 1);
  await it.release(found as never);
  await it.route();
  t.is((await it.partition("a")).breaker_reason, null);
});

/** A job of key k that is parked without an error: it was postponed before it ran. */
async function parkedUnrun(it: Engine): Promise<string> {
  const id = await admitted(it);
  await it.pool.query("select * from dispatch_policy.release_slots($1)", [id]);
  if (!(await rowOf(it, id)).parked) throw new Error("It is not parked");
  return id;
}

test("a job for tomorrow that gets a parked job's row while a pass waits for it does not run today", async (t) => {
  const it = await engine(t, ONE);
  await it.waitsLong();
  const id = await parkedUnrun(it);
  await it.pool.query(
    "select graphile_worker.add_job('plain', '{}', job_key => 'k', job_key_mode => 'preserve_run_at')",
  );
  t.like(await rowOf(it, id), { parked: true }, "it got the time of the parked one");
  const [app, ticker] = [await it.session(), await it.session()];
  await app.query("begin");
  await app.query(
    "select graphile_worker.add_job('plain', '{}', job_key => 'k', run_at => now() + interval '1 day')",
  );
  await it.route();
  const pass = it.admit({ as: ticker });
  await it.waitsForLock(ticker);
  await app.query("commit");
  await pass;
  await it.passes(2);
  t.like(await rowOf(it, id), { later: true });
});

test("permanently_fail_jobs leaves a native job of the key alone that is added while it waits", async (t) => {
  const it = await engine(t, ONE);
  await it.waitsLong();
  const [staged] = await it.stage("a", { jobKey: "k" });
  const [app, operator] = [await it.session(), await it.session()];
  await app.query("begin");
  const id = await addPast(it, { key: "k", payload: { v: 2 }, as: app });
  const failing = operator
    .query("select * from dispatch_policy.permanently_fail_jobs(array[$1::bigint])", [staged])
    .then(
      () => null,
      (error) => error as Error,
    );
  await it.waitsForLock(operator);
  await app.query("commit");
  t.log((await failing)?.message ?? "no error");
  t.like(await rowOf(it, id), { payload: { v: 2 }, attempts: 0, last_error: null });
});

type Keyed = { key: string };

/** A job of key k in partition a that is admitted, and waits for a worker that is busy until `unblock`. */
async function waitsForWorker(t: ExecutionContext, { held }: { held: boolean }) {
  let unblock = () => {};
  const blocked = new Promise<void>((resolve) => {
    unblock = resolve;
  });
  const policy = definePolicy("p", {
    context: (payload: unknown) => payload as Keyed,
    partitionBy: (ctx) => ctx.key,
    gates: [concurrencyGate<Keyed>({ max: (ctx) => (ctx.key === "b" ? 0 : 9) })],
  });
  const fails = async () => {
    throw new Error("it fails");
  };
  const worker = await startWorker(t, {
    policies: [policy],
    worker: { concurrentJobs: 1 },
    tasks: { blocker: () => blocked, p: fails, plain: fails },
  });
  t.teardown(() => unblock());
  await worker.pool.query("select graphile_worker.add_job('blocker', '{}')");
  await worker.sees("job:start");
  if (held)
    await worker.pool.query(`select dispatch_policy.hold(policy => 'p', partition => 'a', "for" => '0')`);
  await worker.utils.addJob("p", { key: "a" }, { jobKey: "k" });
  await until("it is admitted", async () => {
    await worker.pool.query("select * from dispatch_policy.tick('p')");
    return Number((await worker.row("select count(*) as n from dispatch_policy.in_flight_jobs")).n) === 1;
  });
  return { ...worker, unblock };
}

test("permanently_fail_jobs leaves a native job alone that is added while it waits, in place of the one that it saw", async (t) => {
  const it = await engine(t, ONE);
  await it.waitsLong();
  const id = await admitted(it);
  const [staged] = await it.stage("a", { jobKey: "k" });
  const [app, operator] = [await it.session(), await it.session()];
  await app.query("begin");
  await app.query("select graphile_worker.complete_jobs(array[$1::bigint])", [id]);
  const native = await addPast(it, { key: "k", payload: { v: 2 }, as: app });
  t.not(native, id, "in a row of its own");
  const failing = operator.query("select * from dispatch_policy.permanently_fail_jobs(array[$1::bigint])", [
    staged,
  ]);
  const refusal = t.throwsAsync(failing, { code: "55P03" });
  await it.waitsForLock(operator);
  await app.query("commit");
  await refusal;
  t.like(await rowOf(it, native), { payload: { v: 2 }, attempts: 0, last_error: null });
});

for (const [what, add] of Object.entries({
  "a plain job that fails":
    "select graphile_worker.add_job('plain', '{}', job_key => 'k', max_attempts => 1)",
  "a job that is copied": `select graphile_worker.add_job('p', '{"key": "b"}', job_key => 'k')`,
})) {
  test(`under a worker: ${what} in a probe's row is no success of the probe`, async (t) => {
    const { pool, unblock } = await waitsForWorker(t, { held: true });
    const partition = () => table(pool, "partitions").one({ key: "a" });
    t.not((await partition()).probe_job_id, null);
    await pool.query(add);
    unblock();
    await until("the probe's slot is freed, and its end is routed", async () => {
      await pool.query("select * from dispatch_policy.tick('p')");
      return (await partition()).probe_job_id === null;
    });
    t.true((await partition()).probing, "the next job is a probe again");
  });
}

test("under a worker: a job past a switched-off policy that fails in an admitted one's row is not staged in that one's partition", async (t) => {
  const worker = await waitsForWorker(t, { held: false });
  await worker.pool.query("select dispatch_policy.switch_policy('p', false)");
  await worker.pool.query(`select graphile_worker.add_job('p', '{"key": "b"}', job_key => 'k')`);
  worker.unblock();
  await worker.sees("job:error");
  await worker.everythingIsReleased();
  const { n } = await worker.row(
    "select count(*)::int as n from dispatch_policy.staged_jobs where partition = 'a'",
  );
  t.is(n, 0, "its payload says b");
});

for (const verb of ["complete_jobs", "permanently_fail_jobs", "reschedule_jobs"]) {
  test(`${verb} by the staged id of an admitted job leaves the native job that took its row alone`, async (t) => {
    const it = await engine(t, ONE);
    const [staged] = await it.stage("a", { jobKey: "k" });
    await it.passes();
    const [id] = (await it.inFlight("a")) as [string];
    t.is(await addPast(it, { key: "k", task: "plain", payload: { v: 2 } }), id, "in the same row");
    const and = verb === "reschedule_jobs" ? ", run_at => now() + interval '1 day'" : "";
    await it.pool.query(`select * from dispatch_policy.${verb}(array[$1::bigint]${and})`, [staged]);
    t.like(await rowOf(it, id), { payload: { v: 2 }, attempts: 0, later: false });
  });
}

test("a job admitted in the row of an older one of its key is told its own time of admission", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  const id = await admitted(it);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  t.deepEqual(await it.inFlight("a"), [id], "in the same row");
  const admission = await admissionOf(it, id);
  const job = await fetchJob(it, id);
  t.is(job.revision, 1);
  const { rows } = await it.pool.query(
    "select admitted from dispatch_policy_internal._start_attempt($1, $2, $3, $4, null)",
    [...[id, job.revision, job.attempts, "worker"]],
  );
  t.true(BigInt(rows[0].admitted) >= BigInt(admission!), "not that of the older one");
});

test("two calls with the same keys in another order, of a task without a policy, do not deadlock", async (t) => {
  const it = await engine(t, ONE);
  const add = (as: Pick<Engine["pool"], "query">, keys: readonly string[]) => {
    const jobs = keys.map((jobKey, n) => ({ n, task: "plain", payload: {}, jobKey }));
    return as.query("select id from dispatch_policy_internal._stage($1, 'unsafe_dedupe') order by n", [
      JSON.stringify([{ policy: null, jobs }]),
    ]);
  };
  await addPast(it, { task: "plain" }); // it knows the task: otherwise both wait for that
  const [holder, one, other] = [await it.session(), await it.session(), await it.session()];
  await holder.query("begin");
  await addPast(it, { task: "plain", key: "m", as: holder });
  const first = add(one, ["a", "m", "z"]);
  await it.waitsForLock(one);
  const second = add(other, ["z", "m", "a"]);
  await it.waitsForLock(other);
  await holder.query("rollback");
  const [{ rows: ids }, { rows: known }] = await Promise.all([first, second]);
  t.deepEqual(known, ids.toReversed(), "the same jobs");
  t.is(await it.number("select count(*)::int from graphile_worker.jobs"), 4);
});
