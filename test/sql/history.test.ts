// How jobs end, as the history has it; what is kept for how long; and that other policies write none of it.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, type EngineOptions, engine, throttle } from "../helpers/engine.ts";

async function remembering(t: ExecutionContext, options: Partial<EngineOptions> = {}) {
  const it = await engine(t, { gates: [concurrency(1)], ...options });
  await it.table("policies").set({ history_kept_for: 3600 });
  return it;
}
const rows = async (it: Engine) => {
  await it.readEvents();
  return (await it.pool.query("select * from dispatch_policy.history order by id")).rows;
};
const outcomes = async (it: Engine) => (await rows(it)).map(({ outcome }) => outcome);
/** How many rows the two tables have. */
const written = async (it: Engine) => {
  await it.readEvents();
  const tables = ["history", "waits"] as const;
  return (await Promise.all(tables.map((name) => it.table(name).count()))).reduce((sum, n) => sum + n);
};

test("a row comes with the admission, and the release ends it", async (t) => {
  const it = await remembering(t);
  const [id] = await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [job] = await it.inFlight();
  t.like((await rows(it))[0], {
    ...{ id, job_id: job, policy: "p", partition: "a", task_identifier: "p", job_key: "k" },
    ...{ outcome: null, ended_at: null, attempts: null },
  });
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  await it.release([{ job: job!, attempt: 1, lagMs: 10, durationMs: 5 }]);
  const [row] = await rows(it);
  t.like(row, { id, outcome: "succeeded", attempts: 1, error: null });
  t.is(row.started_at.getTime(), row.admitted_at.getTime() + 10);
});

test("operators remove jobs before they ran, and fail them", async (t) => {
  const it = await remembering(t);
  const [removed, completed, failed] = await it.stage(["a", "a", "a"]);
  const [byKey] = await it.stage("a", { jobKey: "x" });
  await it.route();
  await it.pool.query("select dispatch_policy.remove(array[$1::bigint], dry_run => true)", [removed]);
  t.is(await written(it), 0, "a dry run removes nothing");
  await it.pool.query("select dispatch_policy.remove(array[$1::bigint])", [removed]);
  await it.pool.query("select dispatch_policy.complete_jobs(array[$1::bigint])", [completed]);
  await it.pool.query("select dispatch_policy.permanently_fail_jobs(array[$1::bigint], e'no\\nmore')", [
    failed,
  ]);
  await it.pool.query("select dispatch_policy.remove_job('x')");
  const found = await rows(it);
  t.deepEqual(
    found.map(({ id, outcome, error, admitted_at }) => [id, outcome, error, admitted_at]),
    [
      [removed, "removed", null, null],
      [completed, "removed", null, null],
      [failed, "failed", "no", null],
      [byKey, "removed", null, null],
    ],
  );
  for (const { added_at, ended_at, waited } of found)
    t.true(Math.abs(waited.in_line * 1000 - (ended_at - added_at)) <= 2, "the whole wait, in milliseconds");
});

test("jobs are dropped by a bounded backlog, and by gates that deny", async (t) => {
  const it = await remembering(t, { maxPending: { partition: 1, whenFull: "drop_oldest" } });
  await it.table("policies").set({ max_pending: 1, when_full: "drop_oldest" });
  const [oldest] = await it.stage("a");
  await it.stage("a");
  t.like((await rows(it))[0], { id: oldest, outcome: "dropped", partition: "a", error: "max_pending" });
  await it.passes();
  await it.table("policies").set({ max_pending: null, when_busy: "skip" });
  await it.stage("a");
  await it.passes();
  t.deepEqual(await outcomes(it), ["dropped", null, "dropped"]);
  t.is(await it.staged(), 0);
});

test("a job that expires is dropped, by a pass and by a sweep, and a cancelled one is removed", async (t) => {
  const it = await remembering(t);
  const [first, second] = await it.stage(["a", "b", "c"]);
  await it.route();
  await it.table("staged_jobs").set({ expires_at: "-infinity" }, { id: first });
  await it.pool.query("select dispatch_policy_internal._sweep_expired(now())");
  await it.table("staged_jobs").set({ expires_at: "-infinity" }, { id: second });
  await it.pool.query("select dispatch_policy.cancel(policy => 'p', partition => 'c')");
  await it.passes();
  t.deepEqual(await outcomes(it), ["dropped", "dropped", "removed"]);
  t.is(await it.staged(), 0);
});

test("a newer job of its key replaces an admitted one, and one that waits for its retry", async (t) => {
  const it = await remembering(t, { gates: [] });
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [newer] = await it.stage("a", { jobKey: "k" });
  await it.passes();
  t.deepEqual(await outcomes(it), ["replaced", null]);
  const [job] = await it.inFlight();
  await it.finish([job!]);
  t.like((await rows(it))[1], { id: newer, outcome: "succeeded" });
});

test("a job whose end nobody saw is gone, and has failed if Graphile Worker says so", async (t) => {
  const it = await remembering(t, { gates: [] });
  await it.stage(["a", "b", "c"]);
  await it.passes();
  const [gone, failed, runs] = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[gone]]);
  await it.pool.query("select graphile_worker.permanently_fail_jobs($1, e'why\\nhow')", [[failed]]);
  await it.release([gone!, failed!, runs!].map((job) => ({ job, ok: null })));
  t.deepEqual(
    (await rows(it)).map(({ outcome, error }) => [outcome, error]),
    [
      ["gone", null],
      ["failed", "why"],
      [null, null],
    ],
  );
});

test("a sweep ends what no release has ended, and leaves jobs that go on", async (t) => {
  const it = await remembering(t, { gates: [] });
  await it.stage(["a", "b", "c", "d"]);
  await it.passes();
  const [gone, failed, waits] = await it.inFlight();
  await it.release([gone!, failed!, waits!].map((job) => ({ job, ok: null })));
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[gone]]);
  await it.pool.query("select graphile_worker.permanently_fail_jobs($1, 'why')", [[failed]]);
  const close = async (now: string) => {
    await it.readEvents();
    return it.number(`select closed from dispatch_policy_internal._close_history(${now})`);
  };
  t.is(await close("now()"), 0, "they have just been admitted");
  t.is(await close("now() + interval '2 minutes'"), 2);
  t.deepEqual(await outcomes(it), ["gone", "failed", null, null]);
});

test("jobs that go on in Graphile Worker do not keep a sweep from those that are gone, page by page", async (t) => {
  const it = await remembering(t, { gates: [] });
  await it.stage(Array(7).fill("a"));
  await it.passes();
  const jobs = await it.inFlight();
  await it.release(jobs.map((job) => ({ job, ok: null }))); // they wait there, without a slot
  await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs.slice(4, 6)]);
  await it.readEvents();
  const pages: number[] = [];
  let place: unknown[] = [0, "0"];
  for (;;) {
    const { rows: found } = await it.pool.query(
      "select * from dispatch_policy_internal._close_history(now() + interval '2 minutes', $1, $2, 3)",
      place,
    );
    pages.push(found[0].closed);
    if (found[0].staged_id === null) break;
    place = [found[0].policy_id, found[0].staged_id];
  }
  t.deepEqual(pages, [0, 2, 0]);
  t.deepEqual(await outcomes(it), [null, null, null, null, "gone", "gone", null]);
});

test("a job that retry brought back goes on in its row", async (t) => {
  const it = await remembering(t, { gates: [], keyPath: "key" });
  await it.pool.query(`select dispatch_policy.add_job('p', '{"key": "a"}')`);
  await it.passes();
  const [job] = await it.inFlight();
  await it.pool.query("select graphile_worker.permanently_fail_jobs($1, 'why')", [[job]]);
  await it.release([{ job: job!, ok: false }]);
  t.deepEqual(await outcomes(it), ["failed"]);
  await it.pool.query("select dispatch_policy.retry(array[$1::bigint])", [job]);
  await it.passes();
  t.like((await rows(it))[0], { outcome: null, ended_at: null, error: null });
  await it.finish([job!]);
  t.deepEqual(await outcomes(it), ["succeeded"]);
});

test("sweeps delete what is older than the policy keeps it, and all of a policy that keeps nothing any more", async (t) => {
  const it = await remembering(t, { gates: [throttle(1, { per: 3600 })] });
  await it.stage(["a", "a", "b"]);
  await it.passes();
  await it.finish(await it.inFlight());
  await it.pool.query("select dispatch_policy.hold('p', 'z', now() + interval '1 second')");
  await it.readEvents();
  t.is(await it.table("waits").count({ until_at: null }), 1);
  const collect = (now: string) =>
    it.number(
      `select sum(dispatch_policy_internal._collect_old(t, ${now}))::int from unnest('{history,waits}'::text[]) t`,
    );
  t.is(await collect("now() + interval '59 minutes'"), 0);
  t.is(await collect("now() + interval '61 minutes'"), 3, "two jobs that ended and a stop");
  t.is(await written(it), 1, "the reason is in force");
  await it.table("policies").set({ history_kept_for: null });
  t.is(await collect("now()"), 1);
  t.is(await written(it), 0);
});

test("of a partition's reasons the last one that is old stays, until the partition is forgotten", async (t) => {
  const it = await remembering(t);
  await it.stage("a");
  await it.route();
  const { id: partition_id, policy_id } = await it.partition("a");
  const from_at = () => "now() - n * interval '1 hour'";
  await it.table("waits").add({ partition_id, from_at, policy_id, waited: {} }, 4);
  t.is(
    await it.number("select dispatch_policy_internal._collect_old('waits', now() + interval '1 second')"),
    3,
  );
  await it.table("partitions").remove();
  t.is(
    await it.number("select dispatch_policy_internal._collect_old('waits', now() + interval '1 second')"),
    1,
  );
});

test("a policy without a history writes none of it", async (t) => {
  const it = await engine(t, {
    gates: [concurrency(1)],
    breaker: { failures: 1, withinSeconds: 60, cooldownSeconds: 60 },
  });
  const [first] = await it.stage(["a", "a", "a"]);
  await it.passes();
  await it.finish(await it.inFlight());
  await it.pool.query("select dispatch_policy.pause('p'); select dispatch_policy.resume('p')");
  await it.pool.query("select dispatch_policy.hold('p', 'b', now() + interval '1 hour')");
  await it.passes();
  await it.release((await it.inFlight()).map((job) => ({ job, ok: false })));
  await it.pool.query("select dispatch_policy.remove(policy => 'p')");
  t.truthy(first);
  t.is(await written(it), 0);
});

test("holds that overlap are one stop, and one that begins later is another", async (t) => {
  const it = await remembering(t);
  await it.stage("a");
  await it.route();
  const hold = (seconds: number) =>
    it.pool.query(`select dispatch_policy.hold('p', 'a', "for" => make_interval(secs => $1))`, [seconds]);
  const stops = async () => {
    await it.readEvents();
    return (await it.table("waits").all({ until_at: (its) => `${its} is not null` })).map(
      ({ from_at, until_at }) => Math.round((until_at - from_at) / 1000),
    );
  };
  await hold(60);
  await hold(3600);
  await hold(30);
  t.deepEqual(await stops(), [3600]);
  await it.pool.query("select dispatch_policy.resume('p', 'a')");
  await hold(60);
  t.is((await stops()).length, 2);
});
