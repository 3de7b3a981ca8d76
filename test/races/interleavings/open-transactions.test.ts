// What ticks and releases do beside transactions that others leave open, and how they end when their own is cut.
import test from "ava";
import { concurrency, engine, type StageOptions, until } from "../../helpers/engine.ts";
import { failJob, fetchJob } from "../../helpers/native.ts";

const ROOMY = { gates: [concurrency(9, { name: "all", scope: "policy" })] };

test("a staged row that an open transaction removed is skipped, and nothing is charged for it", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  const [removed] = await world.stage(["a", "a"]);
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await app.query("select dispatch_policy.remove(ids => array[$1::bigint])", [removed]);

  t.is((await world.admit()).admitted, 1, "without waiting");
  t.is((await world.limiter("concurrency")).in_flight, 1);
  await app.query("commit");
  t.is(await world.passes(2), 0);
  t.is(await world.staged(), 0);
  t.is(await world.wrongCounters(), 0);
});

test("a staged row whose removal is rolled back is admitted soon after", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage("a");
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await world.table("staged_jobs", app).remove();
  t.is((await world.admit()).admitted, 0);
  await app.query("rollback");

  await until("the job is admitted", async () => (await world.passes()) === 1);
});

test("a keyed job that an open transaction replaces holds up neither tick nor unrelated release", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage("b");
  await world.passes();
  const [running] = await world.inFlight("b");
  await world.stage("a", { jobKey: "K1" });
  await world.stage("c");
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await world.stage("a", { jobKey: "K1", as: app });

  t.is((await world.admit()).admitted, 1, "that of c");
  t.deepEqual(await world.release([running!]), [running]);
  await app.query("commit");
  await until("the keyed job is admitted", async () => (await world.passes()) === 1);
  t.is(await world.wrongCounters(), 0);
});

/** What an application may leave open that Graphile Worker's own functions then wait for. */
const WAITED_FOR: Record<string, { opens: string; stages: StageOptions; rolledBack?: true }> = {
  "a task that is new": {
    opens: "select graphile_worker.add_job('fresh')",
    stages: { task: "fresh" },
  },
  "a queue that is new": {
    opens: "select graphile_worker.add_job('other', queue_name => 'new')",
    stages: { queueName: "new" },
  },
  "a job of a key": {
    opens: "select graphile_worker.add_job('other', job_key => 'K1')",
    stages: { jobKey: "K1" },
    rolledBack: true, // committed, it is the newer one of the key
  },
};

for (const [what, { opens, stages, rolledBack }] of Object.entries(WAITED_FOR)) {
  for (const end of rolledBack ? ["rollback"] : ["commit", "rollback"]) {
    test(`${what}, in an open transaction, delays the jobs that need it, and no others: ${end}`, async (t) => {
      const world = await engine(t, { ...ROOMY, otherTasks: ["fresh"] });
      await world.stage("b");
      await world.passes();
      const [running] = await world.inFlight("b");
      await world.stage("a", stages);
      await world.stage(["a", "c", "c"]);
      await world.route();
      const app = await world.session();
      await app.query("begin");
      await app.query(opens);

      const { admitted, quarantined } = await world.admit();
      t.deepEqual({ admitted, quarantined }, { admitted: 3, quarantined: 1 });
      t.deepEqual(await world.release([running!]), [running]);
      const [waiting] = (await world.pool.query("select reason, error from dispatch_policy.staged_jobs"))
        .rows;
      t.is(waiting.reason, "quarantined");
      t.regex(waiting.error, /lock timeout/);

      await app.query(end);
      await until("it is admitted", async () => (await world.passes()) === 1);
      t.is(await world.wrongCounters(), 0);
    });
  }
}

test("a hundred jobs of a queue that an open transaction brought in wait for it once", async (t) => {
  const world = await engine(t, {
    gates: [concurrency(999, { name: "all", scope: "policy" })],
    batchSize: 500,
  });
  const batch = world.batch(Array(200).fill("a")) as { jobs: object[] };
  const jobs = batch.jobs.map((job, i) => (i % 2 ? { ...job, queueName: "new" } : job));
  await world.pool.query("select dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs }]),
  ]);
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await app.query("select graphile_worker.add_job('other', queue_name => 'new')");
  const { admitted, quarantined } = await world.admit();
  t.deepEqual({ admitted, quarantined }, { admitted: 100, quarantined: 100 });
});

test("a job that somebody has locked, while another one of its queue is quarantined, goes soon after", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage("a", { queueName: "new" });
  const [locked] = await world.stage("b", { queueName: "new" });
  await world.route();
  const [app, other] = [await world.session(), await world.session()];
  await app.query("begin");
  await app.query("select graphile_worker.add_job('other', queue_name => 'new')");
  await other.query("begin");
  await world.table("staged_jobs", other).lock({ id: locked });
  const { admitted, quarantined } = await world.admit();
  t.deepEqual({ admitted, quarantined }, { admitted: 0, quarantined: 1 });
  await other.query("rollback");
  await app.query("commit");
  let went = 0;
  await until("both are admitted", async () => {
    went += await world.passes(1);
    return went === 2;
  });
  t.is(await world.wrongCounters(), 0);
});

test("a failed job that an open transaction reschedules delays its own release, and no others", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage(["a", "b", "c"]);
  await world.passes();
  const [a] = await world.inFlight("a");
  const others = [...(await world.inFlight("b")), ...(await world.inFlight("c"))];
  for (const job of [a!, ...others]) await fetchJob(world, job);
  await failJob(world, a!);
  await failJob(world, others[0]!);
  const app = await world.session();
  await app.query("begin");
  await app.query("select from graphile_worker.reschedule_jobs(array[$1::bigint], priority => 1)", [a]);

  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
  const ended = [a!, others[0]!].map((job) => ({ job, ok: false, attempt: 1, retry }));
  t.deepEqual(await world.release([...ended, others[1]!]), others);
  t.is((await world.limiter("all")).in_flight, 1, "a's, whose failure comes again");
  await app.query("commit");
  t.deepEqual(await world.release([ended[0]!]), [a]);
  t.is((await world.limiter("all")).in_flight, 0);
  t.is(await world.staged(), 2);
});

test("sixty of them delay none of the others for long", async (t) => {
  const world = await engine(t, {
    gates: [concurrency(99, { name: "all", scope: "policy" })],
    batchSize: 99,
  });
  await world.stage([...Array(60).fill("a"), "b"]);
  await world.passes(1, 99);
  const [free] = await world.inFlight("b");
  const jobs = await world.inFlight();
  t.is(jobs.length, 61);
  for (const job of jobs) await fetchJob(world, job);
  for (const job of jobs) await failJob(world, job);
  const app = await world.session();
  await app.query("begin");
  await app.query("select from graphile_worker.reschedule_jobs($1, priority => 1)", [
    await world.inFlight("a"),
  ]);

  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
  const ended = jobs.map((job) => ({ job, ok: false, attempt: 1, retry }));
  await until("the other one is released", async () => (await world.release(ended)).includes(free!));
});

test("an in-flight row that an open transaction holds delays its own release, and no others", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage(["a", "b"]);
  await world.passes();
  const [[a], [b]] = [await world.inFlight("a"), await world.inFlight("b")];
  const app = await world.session();
  await app.query("begin");
  await app.query("select dispatch_policy.complete_jobs($1)", [[a]]);
  t.deepEqual(await world.release([a!, b!]), [b]);
  await app.query("commit");
  t.deepEqual(await world.release([a!]), [a]);
  t.is(await world.wrongCounters(), 0);
});

test("a limiter that an open transaction holds delays the releases that need it, and no others", async (t) => {
  const world = await engine(t, { gates: [concurrency(9)] });
  await world.stage(["a", "b"]);
  await world.passes();
  const [[a], [b]] = [await world.inFlight("a"), await world.inFlight("b")];
  const app = await world.session();
  await app.query("begin");
  await world.table("limiters", app).lock({ scope_key: "a" });
  t.deepEqual(await world.release([a!, b!]), [b]);
  await app.query("commit");
  t.deepEqual(await world.release([a!]), [a]);
  t.is(await world.wrongCounters(), 0);
});

for (const level of ["repeatable read", "serializable"]) {
  test(`a tick under ${level} is refused`, async (t) => {
    const world = await engine(t, ROOMY);
    await world.stage("a");
    await world.route();
    const caller = await world.session();
    await caller.query(`begin isolation level ${level}`);
    await t.throwsAsync(world.admit({ as: caller }), { message: /expected read committed/ });
  });

  test(`a release under ${level} is refused`, async (t) => {
    const world = await engine(t, ROOMY);
    await world.stage("a");
    await world.passes();
    const jobs = await world.inFlight();
    const caller = await world.session();
    await caller.query(`begin isolation level ${level}`);
    await t.throwsAsync(world.release(jobs, caller), { message: /expected read committed/ });
  });

  test(`a router under ${level} is refused`, async (t) => {
    const world = await engine(t, ROOMY);
    await world.stage("a");
    const caller = await world.session();
    await caller.query(`begin isolation level ${level}`);
    await t.throwsAsync(world.route(caller), { message: /expected read committed/ });
  });
}

test("routing and admitting again in one transaction beside another tick does not deadlock", async (t) => {
  const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await world.waitsLong();
  await world.stage(["a", "b"]);
  await world.route();
  const caller = await world.session();
  const other = await world.session();
  await caller.query("begin");
  t.is((await world.admit({ as: caller, claim: 1 })).admitted, 1, "holds the limiter");
  const tick = world.admit({ as: other, claim: 1 });
  await world.waitsForLock(other);
  await world.stage(["a", "b"]);

  await caller.query("select * from dispatch_policy.tick('p')");
  await caller.query("commit");
  t.is((await tick).admitted, 0);
  t.is((await world.inFlight()).length, 1);
  t.is(await world.wrongCounters(), 0);
});

test("SQL ticks over all policies beside each other do not deadlock", async (t) => {
  const world = await engine(t, ROOMY);
  const keys = Array.from({ length: 20 }, (_, i) => `k${i}`);
  await world.stage(keys.flatMap((key) => Array(10).fill(key)));
  const tickers = [1, 2, 3].map(async () => {
    for (let tick = 0; tick < 30; tick++) {
      await world.pool.query("select * from dispatch_policy.tick()");
      await world.release(await world.inFlight());
    }
  });
  await t.notThrowsAsync(Promise.all(tickers));
  t.is(await world.wrongCounters(), 0);
});

test("a backend killed inside an admission leaves everything as it was", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage(["a", "b", "c"]);
  await world.route();
  const killed = await world.session();
  await killed.query("begin");
  t.is((await world.admit({ as: killed })).admitted, 3);
  await world.pool.query("select pg_terminate_backend($1, 10000)", [killed.pid]);

  t.is(await world.staged(), 3);
  t.is((await world.inFlight()).length, 0);
  t.is((await world.limiter("all")).in_flight, 0);
  t.is(await world.number("select count(*)::int from graphile_worker.jobs"), 0);
  t.is((await world.admit()).admitted, 3);
});

test("a backend killed inside a release leaves the slot taken, for the next flush", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage("a");
  await world.passes();
  const jobs = await world.inFlight();
  const killed = await world.session();
  await killed.query("begin");
  await world.release(jobs, killed);
  await world.pool.query("select pg_terminate_backend($1, 10000)", [killed.pid]);

  t.is((await world.limiter("all")).in_flight, 1);
  t.deepEqual(await world.release(jobs), jobs);
  t.is((await world.limiter("all")).in_flight, 0);
});

test("a backend killed inside a routing loses no arrival", async (t) => {
  const world = await engine(t, ROOMY);
  await world.stage(["a", "b"]);
  const killed = await world.session();
  await killed.query("begin");
  await world.route(killed);
  await world.pool.query("select pg_terminate_backend($1, 10000)", [killed.pid]);

  t.is(await world.passes(), 2);
});
