// Jobs that start without having been admitted, beside ticks, releases and crashes.
import test from "ava";
import { concurrency, type Engine, engine, type Queryable, throttle } from "../../helpers/engine.ts";
import { completeJob, failJob, fetchJob, poolDies } from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

interface Caught {
  readonly verdict: string;
  readonly staged_id: string | null;
  readonly admission: string | null;
}

/** Adds a job past the policy, as a trigger would, and returns its id. */
async function addPast(it: Engine): Promise<string> {
  const { rows } = await it.pool.query("select id from graphile_worker.add_job($1)", [it.policy]);
  return rows[0].id;
}

/** What the wrapper asks when the job starts. */
async function startsUnadmitted(
  it: Engine,
  job: string,
  as: Queryable = it.pool,
  key = "a",
): Promise<Caught> {
  const text = `select c.* from (select $1::bigint as id) o left join graphile_worker.jobs j using (id),
    dispatch_policy_internal._catch_unadmitted(o.id, 0, j.attempts::int, j.locked_by, j.locked_at, $2, '{}', 'enforce', null) c`;
  return (await as.query(text, [job, JSON.stringify(it.batch([key]))])).rows[0];
}

const verdicts = (caught: readonly Caught[]) => caught.map(({ verdict }) => verdict);

test("the first of a new partition makes it, and goes; the next waits in staging", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  const [one, two] = [await addPast(it), await addPast(it)];
  t.deepEqual(verdicts([await startsUnadmitted(it, one), await startsUnadmitted(it, two)]), [
    "admitted",
    "copied",
  ]);
  t.deepEqual(await it.inFlight(), [one]);
  t.is(await it.staged(), 1);
  await it.finish([one]);
  t.is(await it.passes(2), 1);
});

test("a crash before the original completed copies it once, also when the copy has run", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  const [running, job] = [await addPast(it), await addPast(it)];
  await startsUnadmitted(it, running);
  const first = await startsUnadmitted(it, job);
  const again = await startsUnadmitted(it, job);
  t.deepEqual(again, first);
  t.is(await it.staged(), 1);

  await it.finish([running]);
  t.is(await it.passes(2), 1);
  await it.finish(await it.inFlight());
  t.deepEqual(await startsUnadmitted(it, job), first, "with room, it still is not run again");
  t.is(await it.staged(), 0);
});

for (const [what, more] of [
  ["waits", ""],
  ["was unstaged", "select * from dispatch_policy.unstage('p')"],
] as const) {
  test(`a crash before the original completed, and the policy is off: it does not run beside its copy, which ${what}`, async (t) => {
    const it = await engine(t, { gates: [concurrency(1)] });
    const [running, job] = [await addPast(it), await addPast(it)];
    await startsUnadmitted(it, running);
    const first = await startsUnadmitted(it, job);
    await it.pool.query("select dispatch_policy.switch_policy('p', false)");
    if (more) await it.pool.query(more);
    t.deepEqual(await startsUnadmitted(it, job), first);
    t.is((await startsUnadmitted(it, await addPast(it))).verdict, "ungoverned");
  });
}

test("two processes that catch one job at once stage one copy", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await it.waitsLong();
  const [running, job] = [await addPast(it), await addPast(it)];
  await startsUnadmitted(it, running);
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  const caught = await startsUnadmitted(it, job, first);
  const late = startsUnadmitted(it, job, second);
  await it.waitsForLock(second);
  await first.query("commit");
  t.deepEqual(await late, caught);
  t.is(await it.staged(), 1);
});

test("one that another process ran to its end meanwhile is neither run nor staged", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  const job = await addPast(it);
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  t.deepEqual(await startsUnadmitted(it, job), { verdict: "gone", staged_id: null, admission: null });
  t.is(await it.staged(), 0);
  t.deepEqual(await it.inFlight(), []);
});

test("one job caught twice on the spot counts once", async (t) => {
  const it = await engine(t, { gates: [concurrency(3)] });
  const job = await addPast(it);
  await startsUnadmitted(it, job);
  await startsUnadmitted(it, job);
  t.is((await it.limiter("concurrency")).in_flight, 1);
  t.deepEqual(await it.inFlight(), [job]);
});

test("beside a tick that holds the partition it does not wait, and is copied", async (t) => {
  const it = await engine(t, { gates: [concurrency(5)] });
  await it.stage("a");
  await it.route();
  const job = await addPast(it);
  const tick = await it.session();
  await tick.query("begin");
  t.is((await it.admit({ as: tick })).admitted, 1);
  t.is((await startsUnadmitted(it, job)).verdict, "copied");
  await tick.query("commit");
  t.is(await it.passes(2), 1);
});

test("it waits for another's admission on a shared limiter, and then sees what that took", async (t) => {
  const it = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await it.waitsLong();
  await it.stage(["a", "b"], { runAt: new Date(Date.now() + 3_600_000) });
  await it.route();
  const [first, second] = [await it.session(), await it.session()];
  const [one, two] = [await addPast(it), await addPast(it)];
  await first.query("begin");
  t.is((await startsUnadmitted(it, one, first, "a")).verdict, "admitted");
  const late = startsUnadmitted(it, two, second, "b");
  await it.waitsForLock(second);
  await first.query("commit");
  t.is((await late).verdict, "copied");
});

test("it does not overtake its own partition's jobs, nor others that wait for its limiter", async (t) => {
  const it = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await it.stage(["a", "b"]);
  await it.passes();
  const [running] = await it.inFlight();
  t.is((await startsUnadmitted(it, await addPast(it), it.pool, "c")).verdict, "copied", "no room");
  await it.finish([running!]);
  t.is(
    (await startsUnadmitted(it, await addPast(it), it.pool, "d")).verdict,
    "copied",
    "one waits for the room",
  );
  t.is((await startsUnadmitted(it, await addPast(it), it.pool, "a")).verdict, "copied");
  let finished = 0;
  for (let pass = 0; pass < 10; pass++) {
    await it.passes();
    const jobs = await it.inFlight();
    t.true(jobs.length <= 1);
    await it.finish(jobs);
    finished += jobs.length;
  }
  t.is(finished, 4);
});

test("a job that is not admitted takes nothing from the router: how the probe of its partition ended is routed", async (t) => {
  const it = await engine(t, { gates: [concurrency(10)] });
  await it.stage(Array(8).fill("a"));
  await it.route();
  await it.pool.query("select dispatch_policy.hold('p', 'a', \"for\" => '0')");
  t.is(await it.passes(3), 1);
  await it.finish(await it.inFlight());
  const other = JSON.stringify(it.batch(["a"], { gates: [concurrency(9)] }));
  const text =
    "select verdict from dispatch_policy_internal._catch_unadmitted($1, 0, 0, null, null, $2, '{}', 'enforce', null)";
  const { rows } = await it.pool.query(text, [await addPast(it), other]);
  t.is(rows[0].verdict, "copied", "others of its partition wait");
  await it.route();
  t.false((await it.partition("a")).probing);
  t.is(await it.passes(3), 8);
});

test("a paused or held partition admits none", async (t) => {
  const it = await engine(t, { gates: [concurrency(5)] });
  await it.pool.query("select dispatch_policy.pause(policy => 'p', partition => 'a')");
  const job = await addPast(it);
  t.is((await startsUnadmitted(it, job)).verdict, "copied");
  t.is(await it.passes(2), 0);
  await it.pool.query("select dispatch_policy.resume(policy => 'p', partition => 'a')");
  t.is(await it.passes(2), 1);
});

test("tokens are taken, exactly, also on the spot", async (t) => {
  const it = await engine(t, { gates: [throttle(3, { per: 3600 })] });
  const caught: Caught[] = [];
  for (let n = 0; n < 5; n++) caught.push(await startsUnadmitted(it, await addPast(it)));
  t.deepEqual(verdicts(caught), ["admitted", "admitted", "admitted", "copied", "copied"]);
  t.true((await it.limiter("throttle")).tokens < 0.1);
});

test("the row of a copied job is deleted once Graphile Worker does not have the original any more", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  const [running, job] = [await addPast(it), await addPast(it)];
  await startsUnadmitted(it, running);
  await fetchJob(it, job);
  await startsUnadmitted(it, job);
  const notes = () => it.table("superseded_jobs").count();
  await it.pool.query("select dispatch_policy_internal._forget_copied()");
  t.is(await notes(), 1);
  await completeJob(it, job);
  await it.pool.query("select dispatch_policy_internal._forget_copied()");
  t.is(await notes(), 0);
});

const originals = (it: Engine) => it.number("select count(*)::int from graphile_worker.jobs");

test("an original whose worker could not complete it is completed by a sweep, and no copy with it", async (t) => {
  const it = await engine(t, { gates: [throttle(0)] });
  const job = await addPast(it);
  await fetchJob(it, job);
  t.is((await startsUnadmitted(it, job)).verdict, "copied");
  await it.pool.query("select dispatch_policy_internal._forget_copied()");
  t.is(await originals(it), 1, "while a worker has it locked it stays");
  await failJob(it, job); // as Graphile Worker does with the jobs of a pool that shuts itself down
  await it.pool.query("select dispatch_policy_internal._forget_copied()");
  t.is(await originals(it), 0);
  t.is(await it.staged(), 1);
});

test("an original whose worker was killed is completed with its unlocking: nobody can fetch it in between", async (t) => {
  const it = await engine(t, { gates: [throttle(0)] });
  const [taken, other] = [await addPast(it), await addPast(it)];
  await fetchJob(it, taken, "killed");
  await fetchJob(it, other, "killed");
  t.is((await startsUnadmitted(it, taken)).verdict, "copied");
  await poolDies(it, "killed");
  const { rows } = await it.pool.query("select * from dispatch_policy_internal._sweep_workers('judge')");
  t.like(rows, [{ pools: 1, jobs: 2 }]);
  const { rows: left } = await it.pool.query("select id, locked_by from graphile_worker.jobs");
  t.deepEqual(left, [{ id: other, locked_by: null }]);
});

test("one whose limiter an open transaction holds is staged, and neither waits for it nor fails", async (t) => {
  const it = await engine(t, { gates: [throttle(10)] });
  await it.stage("a");
  await it.passes();
  const job = await addPast(it);
  const app = await it.session();
  await app.query("begin");
  await app.query("select * from dispatch_policy.take('p', 'throttle', 'a')");
  t.is((await startsUnadmitted(it, job)).verdict, "copied");
  t.is(await it.staged(), 1);
  await app.query("commit");
  t.is(await it.passes(2), 1);
});

test("a payload that JavaScript rounds is read for its copy: if another job of the pool is locked, the start is asked about again", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  const payload = '{"n": 9007199254740993, "m": 1e400, "text": "\\ud800"}';
  const add = async (): Promise<string> =>
    (await it.pool.query("select id from graphile_worker.add_job($1, $2)", [it.policy, payload])).rows[0].id;
  const jobs = [await add(), await add()];
  for (const job of jobs) await fetchJob(it, job, "pool");
  const locks = "select id, locked_by, locked_at, updated_at from graphile_worker.jobs order by id";
  const lockedBefore = await it.pool.query(locks);
  const start = async (job: string) => {
    const text =
      "select verdict from dispatch_policy_internal._catch_unadmitted($1, 0, 1, 'pool', null, $2, null, 'enforce', null)";
    return (await it.pool.query(text, [job, JSON.stringify(it.batch(["a"]))])).rows[0].verdict;
  };
  t.is(await start(jobs[0]!), "admitted");
  const ending = await it.session();
  await ending.query("begin");
  await workerTable(ending).lock({ id: jobs[0] });
  await t.throwsAsync(start(jobs[1]!), { code: "55P03" });
  t.is(await it.staged(), 0);
  await ending.query("commit");
  t.is(await start(jobs[1]!), "copied");
  const { rows } = await it.pool.query("select payload::text as text from dispatch_policy.staged_jobs");
  t.deepEqual(rows, [{ text: payload }]);
  t.deepEqual((await it.pool.query(locks)).rows, lockedBefore.rows);
});
