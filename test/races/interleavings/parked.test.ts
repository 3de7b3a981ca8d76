// A failed job that waits parked in Graphile Worker, with a staged row that refers to it: the row of Graphile Worker may go
// to the next job of its key, or run again, before the staged row is admitted.
import test from "ava";
import { concurrency, type Engine, engine, throttle, until } from "../../helpers/engine.ts";
import { addPast, admissionOf, failJob, fetchJob, startJob } from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

const FIVE = { gates: [concurrency(5)] };

const jobOf = async (it: Engine, id: string) =>
  (
    await it.pool.query(
      `select j.*, run_at = 'infinity' as parked, run_at > now() + interval '1 hour' as later
       from graphile_worker.jobs j where id = $1`,
      [id],
    )
  ).rows[0];

/** Its failure, as a worker process releases it: it is due again after so many seconds. */
const failed = (it: Engine, job: string, attempt: number, admission: string | null | undefined, after = 0) =>
  it.release([
    { job, ok: false, attempt, admission, retry: { attempt, task: "p", after, maxAttempts: 25 } } as never,
  ]);

/** A job of key k in partition a that has failed, and waits parked. */
async function parked(it: Engine, after = 0, jobKey: string | null = "k"): Promise<string> {
  await it.stage("a", jobKey === null ? {} : { jobKey });
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await fetchJob(it, id);
  const admission = await admissionOf(it, id);
  await failJob(it, id);
  await failed(it, id, 1, admission, after);
  if (!(await jobOf(it, id)).parked) throw new Error("It is not parked");
  return id;
}

for (const task of ["p", "plain"]) {
  test(`a job of task ${task} for tomorrow that took a parked one's row stays as it was added`, async (t) => {
    const it = await engine(t, FIVE);
    const id = await parked(it);
    await it.pool.query(
      "select graphile_worker.add_job($1, '{}', job_key => 'k', run_at => now() + interval '1 day', priority => 7)",
      [task],
    );
    await it.passes(3);
    t.like(await jobOf(it, id), { later: true, priority: 7 });
    t.is((await it.inFlight()).length, 0);
    t.is(await it.staged(), 0);
  });
}

for (const verb of [
  "remove(ids => array[$1::bigint])",
  "complete_jobs(array[$1::bigint])",
  "permanently_fail_jobs(array[$1::bigint])",
]) {
  test(`${verb} of a parked job leaves the newer one in its row alone`, async (t) => {
    const it = await engine(t, FIVE);
    const id = await parked(it, 60);
    const { rows } = await it.pool.query("select id from dispatch_policy.staged_jobs");
    await it.pool.query(
      "select graphile_worker.add_job('plain', '{}', job_key => 'k', run_at => now() + interval '1 day')",
    );
    await it.pool.query(`select * from dispatch_policy.${verb}`, [rows[0].id]);
    t.like(await jobOf(it, id), { attempts: 0, later: true });
  });
}

for (const key of ["k", null]) {
  test(`a retry by hand is copied while its staged row is locked, and its worker dies: the copy runs alone, with ${key} as key`, async (t) => {
    const it = await engine(t, FIVE);
    const id = await parked(it, 0, key);
    const app = await it.session();
    await app.query("begin");
    await it.table("staged_jobs", app).lock({ parked_job_id: id }, "update");
    await it.pool.query("select graphile_worker.reschedule_jobs($1, run_at => now())", [[id]]);
    const job = await fetchJob(it, id);
    t.is((await startJob(it, job, { jobKey: key } as never)).verdict, "copied");
    await app.query("rollback");
    await it.passes(2);
    await it.pool.query("select graphile_worker.force_unlock_workers($1)", [["worker"]]);
    await it.pool.query("select dispatch_policy_internal._forget_copied()");
    t.is(await jobOf(it, id), undefined);
    t.is((await it.inFlight()).length, 1);
  });
}

test("a job that is retried by hand while it is parked, and fails again, is staged once", async (t) => {
  const it = await engine(t, FIVE);
  await it.stage("a");
  await it.passes();
  await it.finish(await it.inFlight());
  const id = await addPast(it);
  for (let run = 0; run < 2; run++) {
    const { verdict, admission } = await startJob(it, await fetchJob(it, id));
    t.is(verdict, "admitted");
    await failJob(it, id);
    await failed(it, id, 1, admission);
    if (run === 0)
      await it.pool.query("select graphile_worker.reschedule_jobs($1, run_at => now(), attempts => 0)", [
        [id],
      ]);
  }
  t.is(await it.staged(), 1);
  await it.stage("b");
  await until(
    "both are admitted",
    async () => (await it.passes()) >= 0 && (await it.inFlight()).length === 2,
  );
});

test("a job whose slot was freed while it ran comes again after each failure", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage("a");
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await fetchJob(it, id);
  const first = await admissionOf(it, id);
  await it.pool.query("select * from dispatch_policy.release_slots($1)", [id]);
  await failJob(it, id, -1); // Graphile Worker's own back-off, over
  await failed(it, id, 1, first);
  const { verdict, admission } = await startJob(it, await fetchJob(it, id));
  t.is(verdict, "admitted");
  await failJob(it, id);
  await failed(it, id, 2, admission);
  await until("it is admitted again", async () => (await it.passes()) === 1);
  t.false((await jobOf(it, id)).parked);
});

test("a native job for later that replaced an admitted one is not parked in that one's place", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight("a")) as [string];
  await it.pool.query(
    "select graphile_worker.add_job('p', '{}', job_key => 'k', run_at => now() + interval '1 day')",
  );
  for (let sweep = 0; sweep < 2; sweep++) {
    const { rows } = await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
    const found = rows.filter(({ job_id }) => job_id !== null);
    await it.release(found.map(({ job_id, marked: _, ...rest }) => ({ job: job_id, ...rest })));
  }
  t.like(await jobOf(it, id), { later: true, parked: false });
  t.is(await it.staged(), 0);
  await it.pool.query("select * from dispatch_policy.release_slots($1)", [id]);
  t.like(await jobOf(it, id), { later: true, parked: false });
  t.is(await it.wrongCounters(), 0);
});

test("jobs that wait for a queue beside one that its own transaction holds set no pass back", async (t) => {
  const it = await engine(t, { gates: [concurrency(50)] });
  await it.stage("a", { queueName: "q" });
  await it.stage("a", { queueName: "q", jobKey: "k" });
  await it.stage("b");
  const app = await it.session();
  await app.query("begin");
  await app.query("select graphile_worker.add_job('plain', queue_name => 'q')");
  await it.stage("a", { queueName: "q", jobKey: "k", as: app });
  t.is(await it.passes(2), 1, "b's");
  await app.query("commit");
  await until("the others go", async () => (await it.passes()) >= 0 && (await it.inFlight("a")).length === 2);
});

test("good jobs behind many that a trigger refuses for a missing right go in the same pass", async (t) => {
  const it = await engine(t, { gates: [concurrency(50)] });
  const guard = "if new.priority = 5 then raise insufficient_privilege using message = 'not for you'; end if";
  await workerTable(it.pool).before("insert", guard);
  await it.stage(Array(12).fill("a"), { priority: 5 });
  await it.stage(["b", "c", "d"]);
  t.is(await it.passes(), 3);
});

test("arrivals that are merged tell that a partition's next job is another", async (t) => {
  const it = await engine(t, { gates: [throttle(2, { per: 3600 })] });
  await it.stage("a", { priority: -5 });
  const [dear] = await it.stage("a", { cost: 2, priority: -1 });
  await it.stage("a");
  t.is(await it.passes(), 1);
  await it.pool.query("select * from dispatch_policy.remove(ids => array[$1::bigint])", [dear]);
  const holder = await it.session();
  await holder.query("begin");
  await it.table("partitions", holder).lock({ key: "a" });
  for (let n = 0; n < 5; n++) await it.stage("a", { priority: 9 });
  await it.pool.query("select dispatch_policy_internal._route('p', null, 3)");
  await holder.query("commit");
  t.is(await it.passes(3), 1, "the cheap one");
});

test("arrivals that are merged keep the time at which a cheaper job comes before a dear one", async (t) => {
  const it = await engine(t, { gates: [throttle(2, { per: 3600 })] });
  await it.stage("a", { priority: -5 });
  await it.stage("a", { cost: 2, priority: -1 });
  t.is(await it.passes(), 1);
  const holder = await it.session();
  await holder.query("begin");
  await it.table("partitions", holder).lock({ key: "a" });
  for (let n = 0; n < 5; n++) await it.stage("a", { priority: 9 });
  const soon = new Date(Date.now() + 5000);
  await it.stage("a", { priority: -3, runAt: soon });
  await it.pool.query("select dispatch_policy_internal._route('p', null, 3)");
  await holder.query("commit");
  await it.route();
  t.true(
    (await it.partition("a")).eligible_at <= soon,
    "not when there are two tokens, half an hour from now",
  );
});
