// What passes, the router and releases append, and how it is folded into minutes and totals.
import test, { type ExecutionContext } from "ava";
import { makeEngine } from "../../src/db/engine.ts";
import { concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";
import { random, seedOf } from "../helpers/random.ts";

const fold = (it: Engine, most = 1000) =>
  it.number("select dispatch_policy_internal._fold_activity($1)", [most]) as Promise<number>;
const totals = (it: Engine) => it.table("minutes").one({ minute: "-infinity" });
const minutes = async (it: Engine) =>
  (await it.pool.query("select * from dispatch_policy.minutes order by minute")).rows;
/** How many of the counted jobs lie in the bucket of so many seconds. */
const inBucketOf = (it: Engine, seconds: number, counts: object) =>
  it.number("select coalesce(($2::jsonb ->> dispatch_policy_internal._bucket($1)::text)::int, 0)", [
    seconds,
    counts,
  ]);

const counted = (counts: Record<string, number>) =>
  Object.values(counts).reduce((sum, jobs) => sum + jobs, 0);

test("a minute has what was staged, admitted, denied and finished in it", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  await it.stage(["a", "a", "a", "b"]);
  await it.passes(2);
  const jobs = await it.inFlight("a");
  await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  await it.release([
    { job: jobs[0]!, lagMs: 20, durationMs: 3000 },
    { job: jobs[1]!, ok: false, lagMs: 7, durationMs: null },
  ]);
  t.true((await fold(it)) > 0);
  const it1 = await totals(it);
  t.like(it1, { staged: "4", admitted: "3", succeeded: "1", failed: "1", dropped: "0", quarantined: "0" });
  t.deepEqual(it1.denied, { concurrency_full: 1 });
  t.is(it1.lag_seconds.toFixed(3), "0.027");
  t.is(await inBucketOf(it, 0.02, it1.lags), 1);
  t.is(await inBucketOf(it, 0.007, it1.lags), 1);
  t.is(it1.run_seconds, 3);
  t.is(await inBucketOf(it, 3, it1.runs), 1);
  const sum = (await minutes(it)).reduce((all, row) => all + Number(row.admitted), 0);
  t.is(sum, 3);
});

test("a wait counts from when the job was due, and not from when it was added", async (t) => {
  const it = await engine(t, { gates: [] });
  const due = Date.now() + 60_000;
  await it.stage("a", { runAt: new Date(due) });
  await it.route();
  const now = new Date(due + 4000);
  t.is((await it.admit({ now })).admitted, 1);
  await fold(it);
  const { waits, wait_seconds } = await totals(it);
  t.is(await inBucketOf(it, 4, waits), 1);
  t.true(wait_seconds > 3 && wait_seconds < 5, `${wait_seconds}`);
  const [minute] = (await minutes(it)).filter(({ admitted }) => admitted === "1");
  t.is(minute.minute.getTime(), Math.floor(now.getTime() / 60_000) * 60_000);
  t.true(minute.wait_p50_seconds > 2.5 && minute.wait_p50_seconds < 5);
});

for (const order of [null, "deadline"])
  test(`a job that was due before it was added waits since it was added${order ? ", also by its deadline" : ""}`, async (t) => {
    const it = await engine(t, { gates: [] });
    await it.table("policies").set({ history_kept_for: 1e7, job_order: order });
    const added = Date.now();
    await it.stage("a", { runAt: new Date(added - 86_400_000) });
    const sort = order ? { sort_at: () => "now() + interval '1 hour'" } : {};
    await it.table("staged_jobs").set({ created_at: new Date(added), ...sort });
    await it.route();
    t.is((await it.admit({ now: new Date(added + 50_000) })).admitted, 1);
    await fold(it);
    const { waits, wait_seconds } = await totals(it);
    t.is(await inBucketOf(it, 50, waits), 1);
    t.is(wait_seconds.toFixed(1), "50.0");
    await it.readEvents();
    const { rows } = await it.pool.query(
      "select extract(epoch from admitted_at - due_at)::float8 as seconds from dispatch_policy.history",
    );
    t.is(rows[0].seconds.toFixed(1), "50.0");
  });

test("a job that was always due waits since it was added", async (t) => {
  const it = await engine(t, { gates: [] });
  const [first] = await it.stage(["a", "a"]);
  await it.table("staged_jobs").set({ run_at: "-infinity" }, { id: first });
  await it.table("partitions").set({ head_run_at: "-infinity" });
  await it.route();
  await it.table("partitions").set({ head_run_at: "-infinity" });
  t.is((await it.admit()).admitted, 2);
  await fold(it);
  const { admitted, waits, wait_seconds } = await totals(it);
  t.is(admitted, "2");
  t.is(counted(waits), 2);
  t.true(wait_seconds < 60, `${wait_seconds}`);
});

test("who admits past the gates is counted, and makes no pass", async (t) => {
  const it = await engine(t, { gates: [throttle(1, { per: 3600 })] });
  await it.stage(["a", "a", "a"]);
  await it.pool.query("select from dispatch_policy.admit('p', 2)");
  await fold(it);
  t.like(await totals(it), { passes: "0", admitted: "2", last_pass_at: null });
});

test("dropped jobs are counted", async (t) => {
  const it = await engine(t, {
    gates: [concurrency(1)],
    maxPending: { partition: 2, whenFull: "drop_oldest" },
  });
  await it.stage(["a", "a"]);
  await it.route();
  await it.stage(["a", "a"]);
  await it.route();
  const { rows } = await it.pool.query(
    "select sum(d.jobs)::int as jobs from dispatch_policy_internal._consume_events('p', true) e, jsonb_to_recordset(e.drops) d (jobs int)",
  );
  t.is(rows[0].jobs, 2);
  await fold(it);
  t.like(await totals(it), { dropped: "2" });
});

test("folding adds to the same minute and the same totals, in steps, and leaves nothing", async (t) => {
  const it = await engine(t, { gates: [] });
  const now = new Date(Date.now() + 60_000);
  for (let round = 0; round < 5; round++) {
    await it.stage(["a"]);
    await it.route();
    await it.admit({ now });
  }
  const rows = await it.table("activity").count();
  let folded = 0;
  for (let n = await fold(it, 2); n > 0; n = await fold(it, 2)) {
    t.true(n <= 2);
    folded += n;
  }
  t.is(folded, rows);
  const all = await totals(it);
  t.like(all, { staged: "5", admitted: "5", passes: "5" });
  t.is(counted(all.waits), 5);
  t.is(
    (await minutes(it)).reduce((sum, { passes }) => sum + Number(passes), 0),
    5,
  );
});

test("who folds beside another skips its rows, and nothing is counted twice", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(["a", "b"]);
  await it.passes();
  const first = await it.session();
  await first.query("begin");
  const folded = (await first.query("select dispatch_policy_internal._fold_activity(1) as n")).rows[0].n;
  t.is(folded, 1);
  await it.stage(["c"]);
  await it.passes();
  // the totals' row is the first one's until it commits
  const second = fold(it, 1);
  await first.query("commit");
  await second;
  await fold(it);
  t.like(await totals(it), { staged: "3", admitted: "3" });
});

test("a pass that is rolled back counts nothing", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(["a"]);
  await it.route();
  const session = await it.session();
  await session.query("begin");
  t.is((await it.admit({ as: session })).admitted, 1);
  await session.query("rollback");
  await fold(it);
  t.like(await totals(it), { admitted: "0", passes: "0" });
});

const JOBS = 300;
/** How long jobs waited, lagged or ran, in seconds, by a number between 0 and 1. */
const DISTRIBUTIONS: Record<string, (unit: number, n: number) => number> = {
  "milliseconds, all the same": () => 0.004,
  "a second, all the same": () => 1,
  "five hours, all the same": () => 18_000,
  "evenly spread to a minute": (unit) => 60 * unit,
  exponential: (unit) => -0.2 * Math.log(1 - unit),
  "heavy in its tail": (unit) => 0.01 / (1 - unit) ** 1.5,
  "fast ones, and six of a hundred slow": (_, n) => (n % 100 < 6 ? 900 : 0.02),
  "fast ones, and four of a hundred slow": (_, n) => (n % 100 < 4 ? 900 : 0.02),
  "from microseconds to days": (unit) => 10 ** (-6 + 11 * unit),
};

for (const [name, secondsOf] of Object.entries(DISTRIBUTIONS))
  test(`quantiles are within a twentieth of the history's, and none is above the longest: ${name}`, async (t) => {
    const it = await engine(t, { gates: [], batchSize: JOBS });
    await it.table("policies").set({ history_kept_for: 1e7 });
    const { unit } = random(seedOf(t));
    const admittedAt = new Date(Date.now() - 3 * 86_400_000);
    const draw = () => Array.from({ length: JOBS }, (_, n) => secondsOf(unit(), n));
    const batches = draw().map((seconds) =>
      it.batch(["a"], { runAt: new Date(admittedAt.getTime() - Math.max(1, seconds * 1000)) }),
    );
    await it.pool.query("select from dispatch_policy_internal._stage($1, 'replace')", [
      JSON.stringify(batches),
    ]);
    await it.table("staged_jobs").set({ created_at: () => "run_at" });
    await it.route();
    t.is((await it.admit({ now: admittedAt })).admitted, JOBS);
    const [lags, runs, jobs] = [draw(), draw(), await it.inFlight()];
    await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
    await it.release(
      jobs.map((job, n) => ({ job, attempt: 1, lagMs: lags[n]! * 1000, durationMs: runs[n]! * 1000 })),
    );
    while ((await fold(it)) > 0);
    const { rows } = await it.pool.query(
      `select q.share, percentile_disc(q.share) within group (order by extract(epoch from h.admitted_at - h.due_at)::float8) as wait,
         percentile_disc(q.share) within group (order by extract(epoch from h.started_at - h.last_admitted_at)::float8) as lag,
         percentile_disc(q.share) within group (order by extract(epoch from h.ended_at - h.started_at)::float8) as run
       from unnest('{0.5, 0.95, 1}'::float8[]) q (share) cross join dispatch_policy.history h group by q.share`,
    );
    const { rows: ofMetrics } = await it.pool.query(
      "select name, labels ->> 'quantile' as share, value from dispatch_policy.metrics() where labels ? 'quantile'",
    );
    for (const { share, wait, lag, run } of rows) {
      const p = share === 1 ? "max_seconds" : `p${share * 100}_seconds`;
      const near = nearAs(share);
      for (const from of [
        "dispatch_policy.minutes",
        "dispatch_policy.minutes_in_steps(null, now() - interval '4 days', '1 minute')",
      ]) {
        const { rows: shown } = await it.pool.query(`select * from ${from} m order by minute`);
        const last = shown.at(-1);
        near(
          t,
          shown.find(({ admitted }) => admitted === String(JOBS))[`wait_${p}`],
          wait,
          `${from} wait ${p}`,
        );
        near(t, last[`lag_${p}`], lag, `${from} lag ${p}`);
        if (`run_${p}` in last) near(t, last[`run_${p}`], run, `${from} run ${p}`);
      }
      const metric = (kind: string) =>
        ofMetrics.find((one) => one.name === `${kind}_seconds` && Number(one.share) === share)?.value;
      near(t, metric("queue_lag"), lag, `metric queue_lag ${p}`);
      near(t, metric("run"), run, `metric run ${p}`);
      t.is(metric("wait"), undefined, "nothing was admitted in the last five minutes");
    }
  });

/** Times are counted in whole microseconds, as single-precision numbers. The longest is kept as it is. */
const nearAs = (share: number) => (t: ExecutionContext, found: number, exact: number, what: string) =>
  t.true(
    Math.abs(found - exact) <= exact * (share === 1 ? 1e-6 : 0.05) + 2e-6,
    `${what}: ${found}, exactly ${exact}`,
  );

// Each lies in a bucket of its own, and 95 of 100 that took as long took no longer.
test("lengths of time that limits often have are told apart, and no quantile is above the longest", async (t) => {
  const it = await engine(t, { gates: [] });
  const { rows } = await it.pool.query(
    `select s.seconds, dispatch_policy_internal._bucket(s.seconds) as bucket, dispatch_policy_internal._quantile(
         0.95, jsonb_build_object(dispatch_policy_internal._bucket(s.seconds), 20), s.seconds) as p95,
       dispatch_policy_internal._quantile(0.95, jsonb_build_object(dispatch_policy_internal._bucket(s.seconds), 20), null) as uncapped
     from unnest('{1, 5, 30, 60, 90, 120, 180, 300, 450, 600, 900, 1200, 1800, 3600}'::float8[]) s (seconds)`,
  );
  t.is(new Set(rows.map(({ bucket }) => bucket)).size, rows.length);
  for (const { seconds, p95, uncapped } of rows) {
    t.true(p95 <= seconds && p95 >= seconds * 0.95, `${seconds}: ${p95}`);
    t.true(Math.abs(uncapped - seconds) <= seconds / 20, `${seconds}: ${uncapped}`);
  }
  t.true(rows.some(({ seconds, uncapped }) => uncapped > seconds));
});

test("old minutes are collected, and totals stay", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(["a"]);
  await it.passes();
  await fold(it);
  const collect = () => makeEngine("dispatch_policy").collectOld(it.pool, "minutes", 3_600_000);
  t.is(await collect(), 0);
  await it.table("minutes").set({ minute: (its) => `${its} - interval '2 hours'` });
  t.true((await collect()) > 0);
  t.deepEqual(await minutes(it), []);
  t.like(await totals(it), { admitted: "1" });
});
