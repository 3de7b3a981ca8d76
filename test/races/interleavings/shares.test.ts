// Gates with perWorker: pools come while passes decide, and a full pool requeues a job while others touch it.
import test, { type ExecutionContext } from "ava";
import { type Engine, engine, share, throttle } from "../../helpers/engine.ts";
import { inside } from "../../helpers/inside.ts";
import {
  addPast,
  completeJob,
  failJob,
  fetchJob,
  poolLives,
  requeue,
  startJob,
} from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

/** A job of `a` was fetched by the pool "worker" and has started. There are as many shares of one as pools. */
async function started(t: ExecutionContext, { pools = ["worker"], gates = [share(1)] } = {}) {
  const world = await engine(t, { gates });
  for (const pool of pools) await poolLives(world, pool);
  const [stagedId] = await world.stage("a", { jobKey: "k", priority: 3, flags: ["mine"] });
  t.is(await world.passes(), 1);
  const [id] = await world.inFlight();
  const job = await fetchJob(world, id!);
  const { admission } = await startJob(world, job);
  return { world, job, stagedId: stagedId!, admission };
}

test("a pool that comes while a pass is under way wakes whom that pass denies", async (t) => {
  const world = await engine(t, { gates: [share(1)] });
  await poolLives(world, "first");
  await world.stage(["a", "a"]);
  await world.route();
  const pass = await world.session();
  await pass.query("begin");
  t.is((await world.admit({ as: pass, bounded: true })).admitted, 1, "it counts one pool");
  await poolLives(world, "second");
  t.is(await world.route(), 0, "nobody waits yet");
  await pass.query("commit");
  t.is((await world.partition("a")).denied_reason, "concurrency_full");
  t.is(await waiting(world), 1, "the heartbeat of a leader finds it");
  t.is(await world.passes(), 1);
  t.is(await waiting(world), 0);
});

test("room that a pool brings is not lost with the partition that is called for it", async (t) => {
  const world = await engine(t, { gates: [share(1, { scope: () => "all" })] });
  await poolLives(world, "first");
  await world.stage("first");
  t.is(await world.passes(), 1);
  await world.stage(["second", "third"]);
  t.is(await world.passes(), 0);
  await poolLives(world, "second");
  await world.table("partitions").set({ fair_key: -1e6 }, { key: "second" });
  await world.pool.query("select from dispatch_policy.remove(policy => $1, partition => 'second')", [
    world.policy,
  ]);
  t.is((await world.admit()).admitted, 0, "it calls the one whose job was removed");
  t.is((await world.admit()).admitted, 1, "the other one");
});

for (const [who, steps] of [
  [
    "a pass that finds the limiter locked",
    async (world: Engine) => {
      const pass = await world.session();
      await pass.query("begin");
      await world.table("limiters", pass).lock({}, "no key update");
      await world.admit();
      await pass.query("commit");
    },
  ],
  ["a tick in SQL", (world: Engine) => world.pool.query("select dispatch_policy.tick($1)", [world.policy])],
] as const) {
  test(`a slot that is freed while a pool is away is there when one comes back, although ${who} has looked`, async (t) => {
    const world = await engine(t, { gates: [share(1, { scope: () => "all" })] });
    for (const pool of ["first", "second"]) await poolLives(world, pool);
    await world.stage(["a", "b", "c"]);
    t.is(await world.passes(2), 2);
    await poolLives(world, "second", 0); // it takes no more jobs
    await world.finish((await world.inFlight()).slice(0, 1));
    await steps(world);
    await poolLives(world, "third");
    t.is(await world.passes(2), 1);
  });
}

/** Limiters with shares that came. */
async function waiting(world: Engine): Promise<number> {
  const { id } = await world.table("policies").one({ name: world.policy });
  const text = "select cardinality(dispatch_policy_internal._with_new_shares($1, 10)) as waiting";
  return (await inside(world.pool, text, [id]))[0].waiting;
}

test("a pool that goes takes its share with it, and nothing more is admitted until jobs end", async (t) => {
  const world = await engine(t, { gates: [share(2)] });
  for (const pool of ["first", "second", "third"]) await poolLives(world, pool);
  await world.stage(Array(10).fill("a"));
  t.is(await world.passes(), 6);
  await poolLives(world, "second", 0);
  await world.table("workers").set({ stale_at: () => "now()" }, { pool_id: "third" });
  const jobs = await world.inFlight();
  await world.finish(jobs.slice(0, 4));
  t.is(await world.passes(3), 0, "two are left, which is one share");
  await world.finish(jobs.slice(4, 5));
  t.is(await world.passes(3), 1);
  await world.drain();
  const left = await world.leftovers();
  t.true(
    Object.values(left).every((count) => count === 0),
    JSON.stringify(left),
  );
});

test("before a pool has told of itself, one share is there", async (t) => {
  const world = await engine(t, { gates: [share(3)] });
  await world.stage(Array(5).fill("a"));
  t.is(await world.passes(2), 3);
});

test("a job that is requeued is staged as it was, and its cap is lowered and rises", async (t) => {
  const { world, job, stagedId, admission } = await started(t, {
    ...{ pools: ["worker", "other"], gates: [throttle(10, { per: 3600 }), share(1)] },
  });
  const now = new Date();
  t.true(await requeue(world, job, admission, { now }));
  const [staged, ...others] = await world.table("staged_jobs").all();
  t.like(staged, { id: stagedId, job_key: "k", priority: 3, due: true, max_attempts: 25 });
  t.deepEqual([staged.flags, others], [["mine"], []]);
  t.deepEqual(await world.inFlight(), []);
  t.is(await world.wrongCounters(), 0);
  const { local_cap, local_until, wake_at } = await world.limiter("concurrency");
  t.deepEqual([local_cap, local_until, wake_at], [0, later(now, 20), later(now, 20)]);
  const tokens = await world.number("select tokens from dispatch_policy.limiters where gate = 'throttle'");
  t.true(tokens > 9.9, `its token came back, ${tokens} are left`);
  t.is((await passAt(world, now)).admitted, 0);
  t.is((await passAt(world, later(now, 19))).admitted, 0);
  t.is((await passAt(world, later(now, 20))).admitted, 1);
  await completeJob(world, job.id);
  const [again] = await world.inFlight();
  t.not(again, job.id);
  const fetched = await fetchJob(world, again!, "other");
  t.deepEqual([fetched.attempts, fetched.key], [1, "k"]);
});

function later(time: Date, ms: number): Date {
  return new Date(time.getTime() + ms);
}

async function passAt(world: Engine, now: Date) {
  await world.pool.query("select dispatch_policy_internal._route($1, $2, 10000)", [world.policy, now]);
  return world.admit({ now });
}

test("a lowered cap rises for who was denied after its policy was off for a moment", async (t) => {
  const { world, job, admission } = await started(t, { pools: ["worker", "other"] });
  const now = new Date();
  t.true(await requeue(world, job, admission, { now }));
  await world.pool.query("select dispatch_policy.switch_policy($1, false)", [world.policy]);
  await world.pool.query("select dispatch_policy_internal._route($1, $2, 10000)", [world.policy, now]);
  await world.pool.query("select dispatch_policy.switch_policy($1, true)", [world.policy]);
  t.is((await passAt(world, now)).admitted, 0);
  t.deepEqual((await world.limiter("concurrency")).wake_at, later(now, 20));
  t.is((await passAt(world, later(now, 20))).admitted, 1);
});

test("jobs that keep coming back double the wait, up to a second, and a job that ends halves it", async (t) => {
  const world = await engine(t, { gates: [share(1, { scope: "policy" })] });
  for (const pool of ["worker", "other"]) await poolLives(world, pool);
  await world.stage(["a", "b", "c"]);
  let now = new Date(Date.now() + 1000);
  t.is((await passAt(world, now)).admitted, 2);
  const [runs] = await world.inFlight();
  const delays: number[] = [];
  const requeues = async () => {
    const id = (await world.inFlight()).find((one) => one !== runs);
    const job = await fetchJob(world, id!);
    t.true(await requeue(world, job, (await startJob(world, job)).admission, { now }));
    await completeJob(world, job.id);
    const { local_delay, local_cap } = await world.limiter("concurrency");
    t.is(local_cap, 1);
    delays.push(Math.round(local_delay * 1000));
  };
  await requeues();
  for (let i = 0; i < 7; i++) {
    now = later(now, delays.at(-1)! - 1);
    t.is((await passAt(world, now)).admitted, 0, `not before ${delays.at(-1)} ms`);
    now = later(now, 2);
    t.is((await passAt(world, now)).admitted, 1, `after ${delays.at(-1)} ms`);
    await requeues();
  }
  t.deepEqual(delays, [20, 40, 80, 160, 320, 640, 1000, 1000]);
  await world.finish([runs!]);
  now = later(now, 10);
  t.is((await passAt(world, now)).admitted, 1, "the slot of a job that ended is free at once");
});

test("the cap rises by one, then by two, four and so on", async (t) => {
  const world = await engine(t, { gates: [share(20)] });
  for (const pool of ["worker", "other"]) await poolLives(world, pool);
  await world.stage(Array(40).fill("a"));
  const now = new Date(Date.now() + 1000);
  await passAt(world, now);
  const jobs = await world.inFlight();
  t.is(jobs.length, 40);
  for (const id of jobs.slice(0, 30)) {
    const job = await fetchJob(world, id);
    t.true(await requeue(world, job, (await startJob(world, job)).admission, { now }));
    await completeJob(world, id);
  }
  const { local_delay: seconds } = await world.limiter("concurrency");
  const admitted: number[] = [];
  for (let step = 1; step <= 6; step++) {
    const at = later(now, Math.ceil(step * seconds * 1000) + 1);
    admitted.push((await passAt(world, at)).admitted);
  }
  t.deepEqual(admitted, [1, 1, 2, 4, 8, 14]);
});

test("a job that has run before comes back with its attempts and its error", async (t) => {
  const { world, job } = await started(t, { pools: ["worker", "other"] });
  await failJob(world, job.id);
  await world.release([
    {
      ...{ job: job.id, ok: false, attempt: 1 },
      retry: { attempt: 1, revision: job.revision, task: "p", after: 0, priority: 3, maxAttempts: 25 },
    },
  ]);
  t.is(await world.passes(2), 1);
  const again = await fetchJob(world, job.id);
  t.is(again.attempts, 2);
  t.true(await requeue(world, again, (await startJob(world, again)).admission));
  await completeJob(world, job.id);
  t.is(await world.wrongCounters(), 0);
  const parked = await world.pool.query("select attempts, last_error, key from graphile_worker.jobs");
  t.deepEqual(parked.rows, [{ attempts: 1, last_error: "oops", key: "k" }]);
  await world.table("limiters").set({ local_until: () => "now() - interval '1 hour'" });
  t.is(await world.passes(2), 1);
  const [id] = await world.inFlight();
  const third = await fetchJob(world, id!, "other");
  t.deepEqual([third.attempts, third.last_error, third.key], [2, "oops", "k"]);
  t.is((await startJob(world, third, { poolId: "other" })).verdict, "known");
});

test("an original whose worker died after it was requeued does not run", async (t) => {
  const { world, job, stagedId, admission } = await started(t);
  t.true(await requeue(world, job, admission));
  await world.pool.query("select graphile_worker.force_unlock_workers('{worker}')");
  const again = await fetchJob(world, job.id, "other");
  const { verdict, staged_id } = await startJob(world, again, { poolId: "other" });
  t.deepEqual([verdict, staged_id], ["copied", stagedId]);
  t.is(await world.staged(), 1);
});

test("a job that was cancelled, released or given to others is not requeued", async (t) => {
  const { world, job, admission } = await started(t);
  t.false(await requeue(world, job, "1"), "another start has the slot");
  t.false(await requeue(world, job, admission, { poolId: "other" }), "another pool has the job");
  await world.table("in_flight_jobs").set({ cancelled_at: () => "now()", cancelled_by: "somebody" });
  t.false(await requeue(world, job, admission), "it was cancelled");
  t.is(await world.staged(), 0, "what was staged is undone");
  await world.table("in_flight_jobs").set({ cancelled_at: null, cancelled_by: null });
  await world.release([job.id]);
  t.false(await requeue(world, job, admission), "its slot was freed");
  t.is(await world.staged(), 0);
});

test("a pass that waits for a limiter sees what a job that came back has left", async (t) => {
  const { world, job, admission } = await started(t, { pools: ["worker", "other"] });
  await world.waitsLong();
  await world.stage("a");
  t.is(await world.passes(), 1, "the share of the other pool");
  await world.stage("a");
  const [full, pass] = [await world.session(), await world.session()];
  await full.query("begin");
  // by a clock that is ahead, so that the cap stays lowered for as long as the test takes
  t.true(await requeue(world, job, admission, { as: full, now: later(new Date(), 1500) }));
  await world.route();
  const admitted = world.admit({ as: pass });
  await world.waitsForLock(pass);
  await world
    .table("limiters", full)
    .set(
      { local_until: () => "clock_timestamp() + interval '1.5 s'" },
      { local_cap: (its) => `${its} is not null` },
    );
  await full.query("commit");
  t.is((await admitted).admitted, 0, "one is in flight, and no more than one may be");
  t.is((await world.limiter("concurrency")).in_flight, 1);
  t.is(await world.wrongCounters(), 0);
});

test("while another session has the limiter locked, a job is not requeued, and loses nothing", async (t) => {
  const { world, job, admission } = await started(t);
  const session = await world.session();
  await session.query("begin");
  await world.table("limiters", session).lock();
  t.false(await requeue(world, job, admission));
  await session.query("commit");
  t.deepEqual([await world.staged(), (await world.inFlight()).length], [0, 1]);
  t.true(await requeue(world, job, admission));
});

test("a newer job of the key that is staged runs beside one that is requeued, as in Graphile Worker", async (t) => {
  const { world, job, stagedId, admission } = await started(t);
  const [newer] = await world.stage("a", { jobKey: "k" });
  t.true(await requeue(world, job, admission));
  await completeJob(world, job.id);
  const { rows } = await world.pool.query("select id, job_key from dispatch_policy.staged_jobs order by id");
  t.deepEqual(rows, [
    { id: stagedId, job_key: null },
    { id: newer, job_key: "k" },
  ]);
  t.is(await world.wrongCounters(), 0);
});

test("a native job of the key that came after the fetch is not overwritten", async (t) => {
  const { world, job, admission } = await started(t);
  await addPast(world, { key: "k", payload: { newest: true } });
  t.true(await requeue(world, job, admission));
  const { rows } = await world.pool.query("select job_key from dispatch_policy.staged_jobs");
  t.deepEqual(rows, [{ job_key: null }]);
  t.deepEqual((await workerTable(world.pool).one({ key: "k" })).payload, { newest: true });
});

test("a cap that is lowered to 0 is no limit of 0", async (t) => {
  const { world, job, admission } = await started(t);
  await poolLives(world, "other");
  const now = new Date(Date.now() + 1000);
  t.true(await requeue(world, job, admission, { now }));
  t.is((await passAt(world, now)).admitted, 0);
  t.is((await world.partition("a")).denied_reason, "concurrency_full");
});

test("under whenBusy skip, a job that was admitted and requeued is not dropped", async (t) => {
  const { world, job, admission } = await started(t, { pools: ["worker", "other"] });
  await world.table("policies").set({ when_busy: "skip" });
  const now = new Date(Date.now() + 1000);
  t.true(await requeue(world, job, admission, { now }));
  await completeJob(world, job.id);
  t.is((await passAt(world, now)).admitted, 0);
  t.is(await world.staged(), 1);
  t.is((await passAt(world, later(now, 21))).admitted, 1);
  const [id] = await world.inFlight();
  const again = await fetchJob(world, id!, "other");
  t.deepEqual([again.attempts, again.last_error, again.key], [1, null, "k"]);
});

test("a sweep finds nothing to repair where pools came, or a cap is lowered", async (t) => {
  const { world, job, admission } = await started(t);
  await world.stage(["a", "a", "a"]);
  t.is(await world.passes(), 0);
  await poolLives(world, "other");
  const sweep = () =>
    world.pool.query("select * from dispatch_policy_internal._sweep_partitions(clock_timestamp())");
  t.deepEqual(Object.values((await sweep()).rows[0]), [0, 0]);
  await world.route();
  t.true(await requeue(world, job, admission));
  await world.passes();
  t.deepEqual(Object.values((await sweep()).rows[0]), [0, 0]);
});

test("explain and the view say how many workers a cap goes by", async (t) => {
  const { world, job, admission } = await started(t, { pools: ["worker", "other"] });
  await world.stage(["a", "a"]);
  t.is(await world.passes(), 1);
  const asked = "select * from dispatch_policy.explain(policy => 'p', partition => 'a')";
  const { rows } = await world.pool.query(asked);
  const text = JSON.stringify(rows[0]);
  t.regex(text, /2 of 2 are in flight \(1 per worker x 2 workers = 2\)/);
  const view = "select max, max_per_worker, workers from dispatch_policy.limiters where gate = 'concurrency'";
  t.deepEqual((await world.pool.query(view)).rows, [{ max: 2, max_per_worker: 1, workers: 2 }]);
  t.true(await requeue(world, job, admission, { now: later(new Date(), 1500) }));
  await world.passes();
  const lowered = JSON.stringify((await world.pool.query(asked)).rows[0]);
  t.regex(lowered, /\(1 per worker x 2 workers = 2, but one that was full has just requeued a job\)/);
});
