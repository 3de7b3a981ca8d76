// Two adds of one debounced key at once, and an add beside the admission of the job.
import test from "ava";
import { type Engine, engine, type Queryable } from "../../helpers/engine.ts";

const DEBOUNCED = { jobKey: "k", wait: 5, maxWait: 60 };

const add = (it: Engine, as: Queryable) => it.stage("a", { ...DEBOUNCED, as });

const rowOf = async (it: Engine, as: Queryable = it.pool) =>
  (await as.query("select id, run_at, debounced_until from dispatch_policy.staged_jobs where job_key = 'k'"))
    .rows[0];

const clock = async (it: Engine): Promise<Date> =>
  (await it.pool.query("select clock_timestamp() as now")).rows[0].now;

test("scenario 36: of two first adds of a key at once, one makes the job and the other postpones it from when it has it", async (t) => {
  const it = await engine(t, { gates: [] });
  const [one, other] = [await it.session(), await it.session()];
  await one.query("begin");
  await add(it, one);
  const first = await rowOf(it, one);
  const second = add(it, other);
  await it.waitsForLock(other);
  await it.pool.query("select pg_sleep(0.05)");
  const committed = await clock(it);
  await one.query("commit");
  t.deepEqual(await second, [first.id]);
  const job = await rowOf(it);
  t.deepEqual(job.debounced_until, first.debounced_until, "the first add's time counts");
  t.true(job.run_at.getTime() >= committed.getTime() + 5000, "not from before it waited");
});

test("a debounced add that waits for the row does not expire before it is due, and keeps an expiresAt", async (t) => {
  const it = await engine(t, { gates: [] });
  const [one, other] = [await it.session(), await it.session()];
  const fixed = new Date(Date.now() + 3_600_000);
  await one.query("begin");
  for (const jobKey of ["fixed", "k"]) await it.stage("a", { ...DEBOUNCED, jobKey, as: one });
  const { jobs, ...batch } = it.batch(["a", "a"], DEBOUNCED) as { jobs: object[] };
  const more = [
    { jobKey: "fixed", expiresAt: fixed },
    { jobKey: "k", expiresAfter: 0.01 },
  ];
  const added = other.query("select from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs: jobs.map((job, n) => ({ ...job, ...more[n] })) }]),
  ]);
  await it.waitsForLock(other);
  await it.pool.query("select pg_sleep(0.05)");
  await one.query("commit");
  await added;
  const { rows } = await it.pool.query(
    `select job_key, extract(epoch from expires_at - run_at)::float8 as after, expires_at
     from dispatch_policy.staged_jobs order by job_key`,
  );
  t.like(rows, [{ job_key: "fixed", expires_at: fixed }, { job_key: "k" }]);
  t.true(rows[1].after >= 0.01 && rows[1].after < 0.02, `${rows[1].after} s`);
});

test("a debounced add that waited for one that rolls back is the first", async (t) => {
  const it = await engine(t, { gates: [] });
  const [one, other] = [await it.session(), await it.session()];
  await one.query("begin");
  await add(it, one);
  const { debounced_until: before } = await rowOf(it, one);
  const second = add(it, other);
  await it.waitsForLock(other);
  await one.query("rollback");
  await second;
  t.true((await rowOf(it)).debounced_until > before);
});

test("scenario 36: a debounced add that waits for the job's admission begins anew", async (t) => {
  const it = await engine(t, { gates: [] });
  const [pass, producer] = [await it.session(), await it.session()];
  await add(it, it.pool);
  const sooner = (its: string) => `${its} - interval '58 s'`;
  await it.table("staged_jobs").set({ run_at: sooner, debounced_until: sooner });
  await it.table("arrivals").set({ due_at: sooner });
  const { id, debounced_until: before } = await rowOf(it);
  await it.route();
  await pass.query("begin");
  t.is((await it.admit({ as: pass })).admitted, 1);
  const added = add(it, producer);
  await it.waitsForLock(producer);
  await pass.query("commit");
  t.notDeepEqual(await added, [id]);
  const anew = await rowOf(it);
  t.true(anew.debounced_until.getTime() > before.getTime() + 50_000);
  t.is(anew.debounced_until.getTime() - anew.run_at.getTime(), 55_000);
  t.is(await it.wrongCounters(), 0);
});
