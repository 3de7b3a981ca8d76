import test from "ava";
import { ArgumentError, concurrency } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";
import { workerTable } from "../helpers/table.ts";

const soon = () => new Date(Date.now() + 3_600_000);
const roomy = { gates: [concurrency<Ctx>({ max: 10 })] };

const add = (it: Scenario, note: string, spec: object) =>
  it.utils.addJob("p", { key: "k", note } as never, { jobKey: "key", ...spec });
const stagedRows = (it: Scenario) =>
  it.rows("select id::text, payload, run_at, priority, job_key from dispatch_policy.staged_jobs order by id");
const workerRows = (it: Scenario) => workerTable(it.pool).all({}, "id");
const notes = (rows: { payload: { note: string } }[]) => rows.map((row) => row.payload.note);

test("scenario 31: replace, while staged", async (t) => {
  const it = await scenario(t, roomy);
  const first = await add(it, "old", { runAt: soon(), priority: 3 });
  const second = await add(it, "new", { priority: 5 });
  t.is(second.id, first.id);
  t.is(await it.staged(), 1);
  const [row] = await stagedRows(it);
  t.deepEqual(row.payload, { key: "k", note: "new" });
  t.is(row.priority, 5);
  t.is((await it.tick()).admitted, 1, "the new run_at holds");
});

test("scenario 31: replace moves a staged job to another partition", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  await it.utils.addJob("p", { key: "a" } as never, { jobKey: "key" });
  await it.tick();
  await it.utils.addJob("p", { key: "a" } as never, { jobKey: "other" });
  await it.utils.addJob("p", { key: "b" } as never, { jobKey: "other" });
  t.is((await it.tick()).admitted, 1);
  t.deepEqual(await it.inFlightBy(), { a: 1, b: 1 });
});

test("scenario 31: replace, once admitted, counts once", async (t) => {
  const it = await scenario(t, roomy);
  await add(it, "old", {});
  t.is((await it.tickNow()).admitted, 1);
  await add(it, "new", { priority: 7 });
  await it.tickNow();
  const jobs = await workerRows(it);
  t.deepEqual(notes(jobs), ["new"]);
  t.is(jobs[0].priority, 7);
  t.is((await it.limiter("concurrency")).in_flight, 1);
  t.is((await it.inFlight()).length, 1);
  t.is(await it.staged(), 0);
  await it.finish(1);
  t.is((await it.limiter("concurrency")).in_flight, 0);
});

test("scenario 31: replace, while it runs, is a second job", async (t) => {
  const it = await scenario(t, roomy);
  const hands = await it.hands();
  await add(it, "old", {});
  await it.tickNow();
  await hands.run(1);
  await add(it, "new", {});
  t.is((await it.tickNow()).admitted, 1);
  await hands.run(2);
  t.is((await it.limiter("concurrency")).in_flight, 2);
  await hands.end(2);
  t.deepEqual(await workerRows(it), []);
  t.is((await it.limiter("concurrency")).in_flight, 0);
});

test("scenario 31: preserve_run_at, while staged and once admitted", async (t) => {
  const it = await scenario(t, roomy);
  const runAt = soon();
  await add(it, "old", { runAt });
  await add(it, "new", { jobKeyMode: "preserve_run_at", runAt: new Date() });
  const [row] = await stagedRows(it);
  t.deepEqual([row.payload.note, row.run_at], ["new", runAt]);

  const past = new Date(Date.now() - 60_000);
  await add(it, "now", { runAt: past });
  t.is((await it.tickNow()).admitted, 1);
  await add(it, "newest", { jobKeyMode: "preserve_run_at" });
  await it.tickNow();
  const [job, ...others] = await workerRows(it);
  t.deepEqual(others, []);
  t.deepEqual([job.payload.note, job.run_at], ["newest", past]);
});

test("scenario 31: unsafe_dedupe changes nothing, staged, admitted or running", async (t) => {
  const it = await scenario(t, roomy);
  const first = await add(it, "old", {});
  const dedupe = () => add(it, "new", { jobKeyMode: "unsafe_dedupe", priority: 9 });
  t.is((await dedupe()).id, first.id);
  t.deepEqual(notes(await stagedRows(it)), ["old"]);
  const hands = await it.hands();
  await it.tickNow();
  await hands.run(1);
  await dedupe();
  t.is(await it.staged(), 0);
  await it.tickNow();
  t.deepEqual(notes(await workerRows(it)), ["old"]);
  await hands.end(1);
  await dedupe();
  t.deepEqual(notes(await stagedRows(it)), ["new"], "it is gone: this is a new job");
});

test("scenario 31: unsafe_dedupe, admitted but not yet running", async (t) => {
  const it = await scenario(t, roomy);
  await add(it, "old", {});
  await it.tickNow();
  await add(it, "new", { jobKeyMode: "unsafe_dedupe" });
  await it.tickNow();
  t.deepEqual(notes(await workerRows(it)), ["old"]);
  t.is(await it.staged(), 0);
});

const removals: [string, (it: Scenario) => Promise<unknown>][] = [
  ["dispatch_policy.remove_job", (it) => it.rows("select dispatch_policy.remove_job('key')")],
];

for (const [how, removeIt] of removals) {
  test(`scenario 31: removal while staged, by ${how}`, async (t) => {
    const it = await scenario(t, roomy);
    await add(it, "a", {});
    await removeIt(it);
    t.is(await it.staged(), 0);
    t.is((await it.tick()).admitted, 0);
    await removeIt(it);
  });

  test(`scenario 31: removal once admitted frees its slot, by ${how}`, async (t) => {
    const it = await scenario(t, roomy);
    await add(it, "a", {});
    await it.tickNow();
    await removeIt(it);
    t.deepEqual(await workerRows(it), []);
    await it.utils.sweep();
    t.is((await it.limiter("concurrency")).in_flight, 0);
  });

  test(`scenario 31: removal while it runs keeps it from being tried again, by ${how}`, async (t) => {
    const it = await scenario(t, roomy);
    const hands = await it.hands();
    await add(it, "a", {});
    await it.tickNow();
    await hands.run(1);
    await removeIt(it);
    const [job] = await workerRows(it);
    t.is(job.key, null);
    t.is((await it.limiter("concurrency")).in_flight, 1, "it still runs");
    await hands.end(1, "badly");
    t.is(await it.staged(), 0);
    t.is((await it.limiter("concurrency")).in_flight, 0);
  });
}

test("scenario 31: removal by utils: by key, by id, and all of a partition, right after staging", async (t) => {
  const it = await scenario(t, roomy);
  await add(it, "a", {});
  t.like(await it.utils.remove({ jobKey: "key" }), { changed: 1 });
  const [job] = await it.stage("1@k");
  t.like(await it.utils.remove({ ids: [job?.id ?? ""] }), { changed: 1 });
  await it.stage("3@k 2@other");
  t.like(await it.utils.remove({ policy: "p", partition: "k", dryRun: true }), { matched: 3, changed: 0 });
  t.like(await it.utils.remove({ policy: "p", partition: "k" }), { matched: 3, changed: 3 });
  t.like(await it.utils.remove({ policy: "p" }), { changed: 2 });
  t.is(await it.staged(), 0);
  t.is((await it.tick()).admitted, 0);
});

test("scenario 31: array payloads of one key merge while staged", async (t) => {
  const it = await scenario(
    t,
    policyOf("batch", {
      context: (payload) => ({ key: (payload as { key: string }[])[0]?.key }) as never,
      shardBy: () => "default",
      weight: 1,
      cost: 1,
    }),
  );
  const items = (...ns: number[]) => ns.map((n) => ({ key: "k", n }));
  await it.utils.addJob("batch", items(1, 2) as never, { jobKey: "key" });
  await it.utils.addJob("batch", items(3) as never, { jobKey: "key" });
  await it.utils.addJob("batch", items(4) as never, { jobKey: "key", jobKeyMode: "preserve_run_at" });
  t.is((await it.tick()).admitted, 1);
  const [job] = await workerRows(it);
  t.deepEqual(job.payload, items(1, 2, 3, 4));
});

test("scenario 31: the same key within one call is refused, as Graphile Worker does, and adds nothing", async (t) => {
  const it = await scenario(t, roomy);
  const spec = (note: string) => ({ identifier: "p", payload: { key: "k", note }, jobKey: "key" });
  const specs = [spec("one"), spec("two"), spec("three")];
  await t.throwsAsync(it.utils.addJobs(specs as never), { instanceOf: ArgumentError, message: /"key"/ });
  t.is(await it.staged(), 0);
  await add(it, "last", {});
  await it.tick();
  t.deepEqual(notes(await workerRows(it)), ["last"]);
});

for (const via of ["utils", "sql"] as const) {
  test(`scenario 31: what a job is added with arrives unchanged (${via})`, async (t) => {
    const it = await scenario(t, roomy);
    const runAt = new Date("2021-03-04T05:06:07.089Z");
    if (via === "utils") {
      await it.utils.addJob("p", { key: "k", deep: [1, { a: null }] } as never, {
        ...{ runAt, priority: -7, queueName: "q's", maxAttempts: 3, flags: ["one", "t'wo"], jobKey: "key" },
      });
    } else {
      await it.rows(
        `select dispatch_policy.add_job('p', '{"key": "k", "deep": [1, {"a": null}]}', queue_name => 'q''s',
          run_at => $1, max_attempts => 3, job_key => 'key', priority => -7, flags => '{one,t''wo}')`,
        [runAt],
      );
    }
    t.is((await it.utils.tick({ policy: "p" })).admitted, 1);
    const [job] = await it.rows("select * from graphile_worker.jobs");
    t.like(job, {
      task_identifier: "p",
      priority: -7,
      queue_name: "q's",
      max_attempts: 3,
      key: "key",
      attempts: 0,
    });
    t.deepEqual(job.run_at, runAt);
    const { one, "t'wo": two } = job.flags;
    t.deepEqual([one, two, Object.keys(job.flags).length], [true, true, 3]);
    t.deepEqual((await workerRows(it))[0].payload, { key: "k", deep: [1, { a: null }] });
  });
}

test("scenario 31: defaults are Graphile Worker's", async (t) => {
  const it = await scenario(t, roomy);
  await it.stage("1@k");
  await it.utils.addJob("plain", {});
  await it.tick();
  const [mine, plain] = ["p", "plain"].map(async (task) => {
    const [job] = await it.rows("select * from graphile_worker.jobs where task_identifier = $1", [task]);
    const { priority, queue_name, max_attempts, key, attempts, last_error } = job;
    return { priority, queue_name, max_attempts, key, attempts, last_error };
  });
  t.deepEqual(await mine, (await plain) as never);
});

test("scenario 31: what adding returns reads like Graphile Worker's job", async (t) => {
  const it = await scenario(t, roomy);
  const plain = await it.utils.addJob("plain", { a: 1 });
  const staged = await add(it, "a", { priority: 4, flags: ["f"] });
  t.deepEqual(
    Object.keys(plain).filter((key) => !(key in staged)),
    [],
  );
  t.like(staged, {
    staged: true,
    policy: "p",
    partition: "k",
    shard: "default",
    attempts: 0,
    priority: 4,
    key: "key",
  });
  t.is(plain.staged, false);
  t.true(Number(staged.id) >= 1e15);
});

test("scenario 31: a key that a job without a policy has is Graphile Worker's own", async (t) => {
  const it = await scenario(t, roomy);
  await it.utils.addJob("plain", {}, { jobKey: "key" });
  await it.utils.addJob("plain", { again: true }, { jobKey: "key" });
  t.is((await workerRows(it)).length, 1);
  await until("it is one job", async () => (await it.rows("select from dispatch_policy.jobs")).length === 1);
  t.pass();
});
