// Adds beside the completion of the job of their key, whose policy remembers keys (`uniqueFor`).
import test from "ava";
import { type Engine, engine, type Queryable } from "../../helpers/engine.ts";

const ONE = { gates: [], uniqueForSeconds: 3600 };

const add = async (it: Engine, as: Queryable = it.pool): Promise<{ id: string; dropped: boolean }> => {
  const { rows } = await as.query(
    "select id, job is not null as dropped from dispatch_policy_internal._stage($1, 'replace')",
    [JSON.stringify([it.batch(["a"], { jobKey: "k" })])],
  );
  return rows[0];
};

/** A job of key k that is admitted. */
async function running(it: Engine): Promise<{ id: string; jobId: string }> {
  const { id } = await add(it);
  await it.passes();
  return { id, jobId: (await it.inFlight())[0]! };
}

test("scenario 37: a release does not wait for an add of its key, and the add that commits is the last", async (t) => {
  const it = await engine(t, ONE);
  const { jobId } = await running(it);
  const producer = await it.session();
  await producer.query("begin");
  const second = await add(it, producer);
  t.false(second.dropped, "the first has not completed");
  t.deepEqual(await it.finish([jobId]), [jobId], "nothing waits");
  await producer.query("commit");
  t.deepEqual(await add(it), { id: second.id, dropped: false }, "it replaces the second");
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await add(it), { id: second.id, dropped: true });
});

test("scenario 37: an add that rolls back leaves the key remembered", async (t) => {
  const it = await engine(t, ONE);
  const { id, jobId } = await running(it);
  const producer = await it.session();
  await producer.query("begin");
  await add(it, producer);
  await it.finish([jobId]);
  await producer.query("rollback");
  t.deepEqual(await add(it), { id, dropped: true });
});

test("an add that waits for a release sees what it says", async (t) => {
  const it = await engine(t, ONE);
  const { id, jobId } = await running(it);
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  await add(it, first);
  const waits = add(it, second);
  await it.waitsForLock(second);
  await it.finish([jobId]);
  await first.query("rollback");
  t.deepEqual(await waits, { id, dropped: true });
});

test("of two first adds of a key at once, the second replaces the first's job", async (t) => {
  const it = await engine(t, ONE);
  const [one, other] = [await it.session(), await it.session()];
  await one.query("begin");
  const first = await add(it, one);
  const second = add(it, other);
  await it.waitsForLock(other);
  await one.query("commit");
  t.deepEqual(await second, { id: first.id, dropped: false });
  await it.passes();
  await it.finish(await it.inFlight());
  t.deepEqual(await add(it), { id: first.id, dropped: true });
});

test("a call that drops an expired job of the key takes the key first, as others do", async (t) => {
  const it = await engine(t, ONE);
  const stage = (as: Queryable, mode: string, keys: string[], more: object = {}) => {
    const batch = it.batch(
      keys.map(() => "a"),
      more,
    ) as { jobs: object[] };
    const jobs = batch.jobs.map((job, n) => ({ ...job, jobKey: keys[n] }));
    return as.query("select id from dispatch_policy_internal._stage($1, $2)", [
      JSON.stringify([{ ...batch, jobs }]),
      mode,
    ]);
  };
  await stage(it.pool, "replace", ["a", "k"], { expiresAt: new Date("2020-01-01") });
  const [holder, one, other] = [await it.session(), await it.session(), await it.session()];
  await holder.query("begin");
  await it.table("staged_jobs", holder).lock({ job_key: "a" });
  const first = stage(one, "replace", ["a", "k"]);
  await it.waitsForLock(one);
  const second = stage(other, "unsafe_dedupe", ["k"]);
  await it.waitsForLock(other);
  await holder.query("commit");
  t.is((await first).rows.length, 2);
  t.is((await second).rows.length, 1);
});

test("a sweep leaves a key alone that a producer has locked", async (t) => {
  const it = await engine(t, ONE);
  const { jobId } = await running(it);
  await it.finish([jobId]);
  await it.readEvents();
  await it.table("unique_keys").set({ ended_at: (its) => `${its} - interval '2 hours'` });
  const producer = await it.session();
  await producer.query("begin");
  const { dropped } = await add(it, producer);
  t.false(dropped);
  await it.pool.query("select dispatch_policy_internal._forget_keys(clock_timestamp() + interval '3 hours')");
  await producer.query("commit");
  t.is(await it.table("unique_keys").count({ staged_id: (its) => `${its} is not null` }), 1);
});

test("a job that Graphile Worker has completed is remembered also before its release", async (t) => {
  const it = await engine(t, ONE);
  const { id, jobId } = await running(it);
  await it.pool.query("select graphile_worker.complete_jobs(array[$1::bigint])", [jobId]);
  t.deepEqual(await add(it), { id, dropped: true });
  await it.release([jobId]);
  t.deepEqual(await add(it), { id, dropped: true });
});

test("a policy is removed although an application has a key of it locked, and a sweep forgets that one", async (t) => {
  const it = await engine(t, ONE);
  const { jobId } = await running(it);
  await it.finish([jobId]);
  const producer = await it.session();
  await producer.query("begin");
  t.true((await add(it, producer)).dropped);
  const removed = async () =>
    (await it.pool.query("select removed from dispatch_policy.remove_policy('p')")).rows[0].removed;
  t.true(await removed());
  await producer.query("commit");
  const keys = () => it.table("unique_keys").count();
  t.is(await keys(), 1);
  await it.pool.query("select dispatch_policy_internal._forget_keys(clock_timestamp() + interval '2 hours')");
  t.is(await keys(), 0);
});

test("a producer of a strict backlog locks its key after the turns", async (t) => {
  const it = await engine(t, { ...ONE, maxPending: { policy: 10, strict: true } });
  const { jobId } = await running(it);
  await it.finish([jobId]);
  const [holder, producer, other] = [await it.session(), await it.session(), await it.session()];
  await holder.query("begin");
  await it.stage("b", { as: holder });
  const added = add(it, producer);
  await it.waitsForLock(producer);
  await other.query("begin");
  await it.table("unique_keys", other).lock({}, "update nowait");
  await other.query("commit");
  await holder.query("commit");
  t.true((await added).dropped);
});
