// What passes, the router and releases append, and how it is folded into minutes and totals.
import test from "ava";
import { concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";

const fold = (it: Engine, most = 1000) =>
  it.number("select dispatch_policy._fold_activity($1)", [most]) as Promise<number>;
const totals = async (it: Engine) =>
  (await it.pool.query("select * from dispatch_policy._private_minutes where minute = '-infinity'")).rows[0];
const minutes = async (it: Engine) =>
  (await it.pool.query("select * from dispatch_policy.minutes order by minute")).rows;
const buckets = async (it: Engine): Promise<number[]> =>
  (await it.pool.query("select dispatch_policy._buckets() as list")).rows[0].list;

/** How many of the counted jobs lie in the bucket of so many seconds. */
async function inBucketOf(it: Engine, seconds: number, counts: readonly string[]): Promise<number> {
  const place = (await buckets(it)).findIndex((bound) => seconds < bound);
  return Number(counts[place]);
}

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
  t.like(it1, { staged: "4", admitted: "3", succeeded: "1", failed: "1", dropped: "0", set_aside: "0" });
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

test("a job that was always due is admitted, and its endless wait is not counted", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(["a", "a"]);
  await it.pool.query(
    "update dispatch_policy._private_staged_jobs set run_at = '-infinity' where id = (select min(id) from dispatch_policy._private_staged_jobs)",
  );
  await it.pool.query("update dispatch_policy._private_partitions set head_run_at = '-infinity'");
  await it.route();
  await it.pool.query("update dispatch_policy._private_partitions set head_run_at = '-infinity'");
  t.is((await it.admit()).admitted, 2);
  await fold(it);
  const { admitted, waits, wait_seconds } = await totals(it);
  t.is(admitted, "2");
  t.is(
    waits.reduce((sum: number, n: string) => sum + Number(n), 0),
    1,
  );
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
    "select sum(jobs)::int as jobs from dispatch_policy._consume_drops('p')",
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
  const rows = await it.number("select count(*)::int from dispatch_policy._private_activity");
  let folded = 0;
  for (let n = await fold(it, 2); n > 0; n = await fold(it, 2)) {
    t.true(n <= 2);
    folded += n;
  }
  t.is(folded, rows);
  const all = await totals(it);
  t.like(all, { staged: "5", admitted: "5", passes: "5" });
  t.is(
    all.waits.reduce((sum: number, n: string) => sum + Number(n), 0),
    5,
  );
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
  const folded = (await first.query("select dispatch_policy._fold_activity(1) as n")).rows[0].n;
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

test("quantiles are those of evenly spread buckets, as Prometheus has them", async (t) => {
  const it = await engine(t, { gates: [] });
  const bounds = await buckets(it);
  const counts = bounds.map((bound) => (bound === 1 ? 10 : bound === 2.5 ? 30 : 0)).concat(0);
  const quantile = (share: number, list: readonly number[]) =>
    it.number("select dispatch_policy._quantile($1, $2)", [share, list]);
  t.is(await quantile(0.25, counts), 1);
  t.is(await quantile(0.5, counts), 1.5);
  t.is(await quantile(1, counts), 2.5);
  t.is(await quantile(0.5, []), null as never);
  t.is(await quantile(0.5, [...bounds.map(() => 0), 3]), bounds.at(-1) as number);
});

test("old minutes are collected, and totals stay", async (t) => {
  const it = await engine(t, { gates: [] });
  await it.stage(["a"]);
  await it.passes();
  await fold(it);
  const collect = (age: string) =>
    it.number("select dispatch_policy._collect_old('_private_minutes', 'minute', clock_timestamp(), $1)", [
      age,
    ]);
  t.is(await collect("1 hour"), 0);
  await it.pool.query("update dispatch_policy._private_minutes set minute = minute - interval '2 hours'");
  t.true((await collect("1 hour")) > 0);
  t.deepEqual(await minutes(it), []);
  t.like(await totals(it), { admitted: "1" });
});
