// Job keys: one job per key, wherever it is, whoever touches it at the same moment.
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { concurrency, Engine, engine, type Queryable, until } from "../../helpers/engine.ts";
import { workerTable } from "../../helpers/table.ts";

const ALL = { gates: [concurrency(9, { name: "all", scope: "policy" })] };
const OWN = { gates: [concurrency(9)] };

const jobs = (world: Engine) => world.number("select count(*)::int from graphile_worker.jobs");

/** A row that went back to staging is looked at again a moment later. */
const untilNothingIsStaged = (world: Engine) =>
  until("nothing is staged", async () => {
    await world.passes(1);
    return (await world.staged()) === 0;
  });

/** What a worker does when it takes a job. */
const take = (as: Queryable) =>
  workerTable(as).set(
    { locked_at: () => "now()", locked_by: "worker", attempts: (its) => `${its} + 1` },
    { key: "K1" },
  );
/** What it does when the job fails. */
const fail = (as: Queryable) =>
  workerTable(as).set(
    { locked_at: null, locked_by: null, last_error: "oops", run_at: () => "now() + interval '3 seconds'" },
    { locked_by: "worker" },
  );

test("staging two keys in one transaction beside a tick does not deadlock", async (t) => {
  const world = await engine(t, ALL);
  await world.stage("a", { jobKey: "K1" });
  await world.stage("a", { jobKey: "K2" });
  await world.route();
  const app = await world.session();
  const ticking = await world.session();
  await app.query("begin");
  await world.stage("a", { jobKey: "K2", as: app });
  await ticking.query("begin");
  t.is((await world.admit({ as: ticking })).admitted, 1, "K1, without waiting for K2");
  const staging = world.stage("a", { jobKey: "K1", as: app });
  await world.waitsForLock(app);
  await ticking.query("commit");
  await staging;
  await app.query("commit");

  // the tick that found K2 taken comes back a moment later
  await until("both are admitted", async () => {
    await world.passes(1);
    return (await world.inFlight()).length >= 2;
  });
  t.is((await world.inFlight()).length, 2, "each key once");
  t.is(await jobs(world), 2);
  t.is(await world.wrongCounters(), 0);
});

test("a job that replaces an admitted, waiting job of its key counts once", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage("a", { jobKey: "K1" });
  t.is(await world.passes(), 1);
  await world.pool.query("select dispatch_policy.set_limit('p', 'concurrency', $1)", [{ max: 5 }]);
  await world.stage("a", { jobKey: "K1" });
  t.is(await world.passes(), 1);

  t.is(await jobs(world), 1);
  t.is((await world.inFlight()).length, 1);
  t.is((await world.limiter("concurrency")).in_flight, 1);
  await world.finish(await world.inFlight());
  t.is((await world.limiter("concurrency")).in_flight, 0);
});

test("one of another partition counts there as well, until it ends", async (t) => {
  const world = await engine(t, OWN);
  await world.stage("a", { jobKey: "K1" });
  await world.passes();
  await world.stage("b", { jobKey: "K1" });
  await world.passes();

  t.is(await jobs(world), 1);
  t.is(await world.wrongCounters(), 0);
  await world.finish(await world.inFlight());
  t.is(await world.wrongCounters(), 0);
  t.is((await world.limiter("concurrency", "a")).in_flight, 0);
  t.is((await world.limiter("concurrency", "b")).in_flight, 0);
});

test("the failure of a job that another one has replaced under its key parks nothing", async (t) => {
  const world = await engine(t, OWN);
  await world.stage("a", { jobKey: "K1" });
  await world.passes();
  const [job] = await world.inFlight();
  await take(world.pool);
  await fail(world.pool);
  await world.stage("b", { jobKey: "K1" });
  t.is(await world.passes(), 1);
  const failed = { job: job!, ok: false, attempt: 1, retry: { attempt: 1, after: 60, task: "p" } };
  await world.release([failed]);
  t.is(await world.staged(), 0);
  t.is((await world.inFlight("b")).length, 1);
  t.is(await world.wrongCounters(), 0);
  await accountedFor(t, world);
});

for (const parks of [false, true]) {
  const what = parks ? "parks" : "releases";

  test(`a release that ${what} a job beside a tick that replaces it from another partition waits`, async (t) => {
    const world = await engine(t, OWN);
    await world.waitsLong();
    await world.stage("a", { jobKey: "K1" });
    await world.passes();
    const [job] = await world.inFlight();
    await world.stage("b", { jobKey: "K1" });
    await world.route();
    const ticking = await world.session();
    const releasing = await world.session();
    await ticking.query("begin");
    await world.admit({ as: ticking });
    const release = world.release([finished(job!, parks)], releasing);
    await world.waitsForLock(releasing);
    await ticking.query("commit");

    t.deepEqual(await release, [], "it holds more than was locked: it comes again");
    t.deepEqual(await world.release([finished(job!, parks)]), [job]);
    t.is(await world.wrongCounters(), 0);
    t.is(await jobs(world), 1);
    await accountedFor(t, world);
  });

  test(`a tick beside a release that ${what} the job it replaces waits, and admits`, async (t) => {
    const world = await engine(t, OWN);
    await world.waitsLong();
    await world.stage("a", { jobKey: "K1" });
    await world.passes();
    const [job] = await world.inFlight();
    await world.stage("b", { jobKey: "K1" });
    await world.route();
    const ticking = await world.session();
    const releasing = await world.session();
    await releasing.query("begin");
    await world.release([finished(job!, parks)], releasing);
    const tick = world.admit({ as: ticking });
    if (parks) await world.waitsForLock(ticking);
    await releasing.query("commit");

    t.is((await tick).admitted, 1);
    t.is(await world.wrongCounters(), 0);
    t.is(await jobs(world), 1);
    await accountedFor(t, world);
  });
}

for (const end of ["commit", "rollback"]) {
  test(`a retry that comes due beside a tick that puts another in its place is not admitted: ${end}`, async (t) => {
    const world = await engine(t, OWN);
    await world.waitsLong();
    await world.stage("a", { jobKey: "K1" });
    await world.passes();
    const [job] = await world.inFlight();
    await world.release([finished(job!, true)]);
    await world.stage("b", { jobKey: "K1" });
    await world.route();
    const ticking = await world.session();
    await ticking.query("begin");
    t.is((await world.admit({ as: ticking })).admitted, 1, "b's");
    const later = new Date(Date.now() + 60_000);
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [later]);
    const other = await world.session();
    const second = world.admit({ now: later, as: other });
    await world.waitsForLock(other);
    await ticking.query(end);

    t.is((await second).admitted, 0, "a's");
    t.is(await jobs(world), 1);
    // The first pass has a's row locked, because b's job gets its parked job. So the second one leaves it to the next.
    t.is(await world.staged(), end === "commit" ? 0 : 2);
    t.is((await world.inFlight("a")).length, 0);
    await accountedFor(t, world);
    t.is(await jobs(world), 0);
  });
}

function finished(job: string, parks: boolean) {
  const retry = { after: 30, task: "p", maxAttempts: 25, queueName: null }; // not due before a test says so
  return parks ? { job, ok: false, retry } : { job };
}

/** When its time has come and its job is done, nothing is left of either. */
async function accountedFor(t: ExecutionContext, world: Engine): Promise<void> {
  const later = new Date(Date.now() + 60_000);
  await world.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [later]);
  await world.admit({ now: later });
  const { rows } = await world.pool.query("select id from graphile_worker.jobs");
  await world.finish(rows.map(({ id }) => id));
  t.is((await world.inFlight()).length, 0);
  t.is(await world.staged(), 0);
  t.is(await world.wrongCounters(), 0);
  t.is(await world.table("limiters").count({ in_flight: (its) => `${its} <> 0` }), 0);
}

test("a keyed job that a worker takes while its successor is admitted: nothing lost, nothing doubled", async (t) => {
  const world = await engine(t, ALL);
  await world.waitsLong();
  await world.stage("a", { jobKey: "K1" });
  await world.passes();
  await world.stage("a", { jobKey: "K1" });
  await world.route();
  const worker = await world.session();
  await worker.query("begin");
  await take(worker);
  const ticking = await world.session();
  const tick = world.admit({ as: ticking });
  await world.waitsForLock(ticking);
  await worker.query("commit");

  const { admitted } = await tick;
  t.is(admitted + (await world.staged()), 1, "admitted as a second job, or back in staging");
  t.is(await world.wrongCounters(), 0);
  await untilNothingIsStaged(world);
  t.is(await jobs(world), 2);
  t.is(await world.staged(), 0);
  t.is((await world.limiter("all")).in_flight, 2);
});

test("a keyed job that fails while its successor is admitted: nothing lost", async (t) => {
  const world = await engine(t, ALL);
  await world.waitsLong();
  await world.stage("a", { jobKey: "K1" });
  await world.passes();
  await take(world.pool);
  await world.stage("a", { jobKey: "K1" });
  await world.route();
  const worker = await world.session();
  await worker.query("begin");
  await fail(worker);
  const ticking = await world.session();
  const tick = world.admit({ as: ticking });
  await world.waitsForLock(ticking);
  await worker.query("commit");

  await tick;
  await untilNothingIsStaged(world);
  t.is(await world.staged(), 0);
  t.is(await world.wrongCounters(), 0);
  t.is((await world.limiter("all")).in_flight, (await world.inFlight()).length);
  t.is(await jobs(world), (await world.inFlight()).length);
});

test("staging two keys beside plain jobs of the same two does not deadlock", async (t) => {
  const world = await engine(t, OWN);
  await world.stage("a", { jobKey: "K2" });
  await world.stage("a", { jobKey: "K1" });
  const [app, staging, plain] = [await world.session(), await world.session(), await world.session()];
  await app.query("begin");
  await world.table("staged_jobs", app).lock({ job_key: "K1" });
  const batch = world.batch(["a", "a"]) as { jobs: object[] };
  const jobs = batch.jobs.map((job, n) => ({ ...job, jobKey: `K${n + 1}` }));
  const staged = staging.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs }]),
  ]);
  await world.waitsForLock(staging);
  const added = plain.query(`select dispatch_policy.add_jobs(array(
    select json_populate_record(null::graphile_worker.job_spec, json_build_object('identifier', 'plain', 'job_key', k))
    from unnest('{K1,K2}'::text[]) k))`);
  await world.waitsForLock(plain);
  await app.query("commit");
  await t.notThrowsAsync(Promise.all([staged, added]));
});

test("calls of the same two policies in another order do not deadlock", async (t) => {
  const world = await engine(t, OWN);
  const another = new Engine(world.url, world.pool, { ...OWN, policy: "q" });
  await another.declare();
  const stage = (as: pg.Client, ...policies: Engine[]) =>
    as.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
      JSON.stringify(policies.map((one) => one.batch(["a"], { jobKey: one.policy }))),
    ]);
  const [app, one, other] = [await world.session(), await world.session(), await world.session()];
  await stage(app, world, another);
  await app.query("begin");
  await world.table("staged_jobs", app).lock({ job_key: "q" });
  const first = stage(one, another, world);
  await world.waitsForLock(one);
  const second = stage(other, world, another);
  await world.waitsForLock(other);
  await app.query("commit");
  await t.notThrowsAsync(Promise.all([first, second]));
  t.is(await world.staged(), 2);
});

test("the same key staged by two sessions at once is one job", async (t) => {
  const world = await engine(t, ALL);
  const app = await world.session();
  const other = await world.session();
  await app.query("begin");
  await world.stage("a", { jobKey: "K1", as: app });
  const second = world.stage("b", { jobKey: "K1", as: other });
  await world.waitsForLock(other);
  await app.query("commit");
  await second;

  t.is(await world.passes(2), 1);
  t.is((await world.inFlight("b")).length, 1, "the later one");
  t.is(await world.staged(), 0);
  t.deepEqual((await world.leftovers()).blocked, 0);
});

for (const commits of [true, false]) {
  const outcome = commits ? "the first one's stays" : "the second's goes in where the first rolls back";

  test(`of two jobs of a key at once, neither of which may replace, ${outcome}`, async (t) => {
    const world = await engine(t, { ...OWN, maxPending: { policy: 100 } });
    const [first, second] = [await world.session(), await world.session()];
    const put = async (as: typeof first, v: string) => {
      const batch = world.batch(["a"], { jobKey: "K1" }) as { jobs: { payload?: unknown }[] };
      for (const job of batch.jobs) job.payload = { v };
      const text = "select id, n, partition from dispatch_policy_internal._stage($1, 'unsafe_dedupe')";
      return (await as.query(text, [JSON.stringify([batch])])).rows;
    };
    await first.query("begin");
    const [winner] = await put(first, "first");
    const late = put(second, "second");
    await world.waitsForLock(second);
    await first.query(commits ? "commit" : "rollback");
    const [row, ...more] = await late;
    t.deepEqual(more, []);
    t.like(row, { n: 0, partition: "a" });
    t.is(row.id === winner.id, commits);
    t.is(await world.number("select dispatch_policy_internal._sweep_pending()"), 0, "one is counted");

    t.is(
      (await world.number("select payload ->> 'v' from dispatch_policy.staged_jobs")) as unknown,
      commits ? "first" : "second",
    );
    t.is(await world.passes(), 1);
    t.is(await world.staged(), 0);
  });
}

test("one that may not replace, and finds its rival gone as it comes to its turn, goes in", async (t) => {
  const world = await engine(t, OWN);
  const [removing, adding] = [await world.session(), await world.session()];
  await removing.query("begin");
  await world.stage("a", { jobKey: "K1", as: removing });
  const late = adding.query("select id from dispatch_policy_internal._stage($1, 'unsafe_dedupe')", [
    JSON.stringify([world.batch(["a"], { jobKey: "K1" })]),
  ]);
  await world.waitsForLock(adding);
  await world.table("staged_jobs", removing).remove();
  await removing.query("commit");
  t.is((await late).rows.length, 1);
  t.is(await world.passes(), 1);
});
