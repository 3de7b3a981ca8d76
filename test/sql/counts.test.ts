// The number of staged jobs that each partition keeps, whatever happens to the jobs: before and after routing.
import test from "ava";
import { concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { addPast, failJob, fetchJob } from "../helpers/native.ts";

const ONE = { gates: [concurrency(1)], batchSize: 9 };
const HOUR_MS = 3_600_000;

interface Case {
  readonly act: (it: Engine) => Promise<unknown>;
  /** Staged jobs of a and b afterwards. Before there are three of a: one of key k, one that is due later, one more. */
  readonly leaves: readonly [a: number, b: number];
}

const sql =
  (text: string): Case["act"] =>
  (it) =>
    it.pool.query(`select * from dispatch_policy.${text}`);
const ids = (where: string) => `array(select id from dispatch_policy.staged_jobs where ${where})`;

/** A job of a runs and fails, and its retry waits. */
async function retries(it: Engine, move?: object): Promise<void> {
  const [job] = (await it.inFlight("a")) as [string];
  await fetchJob(it, job);
  await failJob(it, job);
  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25, ...(move && { move }) };
  await it.release([{ job, ok: false, attempt: 1, retry } as never]);
}

const moveTo = (it: Engine, key: string) => {
  const { partitions } = it.batch([key]) as { partitions: [object] };
  return { ...partitions[0], key, context: {}, weight: 1, cost: 1 };
};

const CASES: Record<string, Case> = {
  "more are added": { act: (it) => it.stage(["a", "b", "b"]), leaves: [4, 2] },
  "one takes the place of another": { act: (it) => it.stage("a", { jobKey: "k" }), leaves: [3, 0] },
  "one takes the place of another, in another partition": {
    act: (it) => it.stage("b", { jobKey: "k" }),
    leaves: [2, 1],
  },
  "some are removed": { act: sql("remove(policy => 'p')"), leaves: [0, 0] },
  "some are cancelled": { act: sql("cancel(policy => 'p')"), leaves: [0, 0] },
  "one is removed by its key": { act: sql("remove_job('k')"), leaves: [2, 0] },
  "one is completed": { act: sql(`complete_jobs(${ids("job_key = 'k'")})`), leaves: [2, 0] },
  "one is failed for good": { act: sql(`permanently_fail_jobs(${ids("job_key = 'k'")})`), leaves: [2, 0] },
  "one is postponed": {
    act: sql(`reschedule_jobs(${ids("job_key = 'k'")}, run_at => now() + interval '1 day')`),
    leaves: [3, 0],
  },
  "one is admitted": {
    act: async (it) => {
      await it.finish(await it.inFlight());
      await it.passes(2);
    },
    leaves: [2, 0],
  },
  "one is admitted past the gates": { act: sql("admit('p', 1)"), leaves: [2, 0] },
  "one that was admitted waits for its retry": { act: (it) => retries(it), leaves: [4, 0] },
  "one that was admitted waits for its retry in another partition": {
    act: (it) => retries(it, moveTo(it, "b")),
    leaves: [3, 1],
  },
  "one whose retry waits is completed": {
    act: async (it) => {
      await retries(it);
      await it.pool.query("select dispatch_policy.complete_jobs(array(select id from graphile_worker.jobs))");
    },
    leaves: [3, 0],
  },
  "one is admitted, and is not there any more": {
    act: async (it) => {
      await addPast(it, { key: "k" });
      await it.finish(await it.inFlight());
      await it.passes(2);
    },
    leaves: [1, 0],
  },
  "they are unstaged": {
    act: async (it) => {
      await it.pool.query("select dispatch_policy.switch_policy('p', false)");
      await it.pool.query("select * from dispatch_policy.unstage('p')");
    },
    leaves: [0, 0],
  },
};

/** What the view says of a and b. */
async function shown(it: Engine): Promise<readonly number[]> {
  const { rows } = await it.pool.query(
    `select (select staged from dispatch_policy.partitions where partition = k.key) as staged
     from (values ('a'), ('b')) k (key)`,
  );
  return rows.map(({ staged }) => staged ?? 0);
}

for (const [what, { act, leaves }] of Object.entries(CASES)) {
  test(`when ${what}`, async (t) => {
    const it = await engine(t, ONE);
    await it.stage("a");
    await it.passes();
    await it.stage("a", { jobKey: "k" });
    await it.stage("a", { runAt: new Date(Date.now() + HOUR_MS) });
    await it.stage("a");
    t.is(await it.passes(2), 0);
    t.deepEqual(await shown(it), [3, 0]);
    await act(it);
    t.is(await it.wrongCounters(), 0);
    await it.route();
    t.is(await it.wrongCounters(), 0);
    t.deepEqual(await shown(it), leaves);
    const sum = await it.number("select staged from dispatch_policy.policies");
    t.is(sum, leaves[0] + leaves[1]);
  });
}

test("jobs that a busy partition skips are not counted any more", async (t) => {
  const it = await engine(t, ONE);
  await it.table("policies").set({ when_busy: "skip" });
  await it.stage(["a", "a", "a"]);
  t.is(await it.passes(2), 1);
  t.is(await it.wrongCounters(), 0);
  t.deepEqual(await shown(it), [0, 0]);
});

test("nor are those that a full backlog drops", async (t) => {
  const it = await engine(t, {
    gates: [throttle(0)],
    maxPending: { partition: 2, whenFull: "drop_oldest" },
  });
  for (let n = 0; n < 4; n++) await it.stage("a");
  await it.route();
  t.is(await it.wrongCounters(), 0);
  t.deepEqual(await shown(it), [2, 0]);
});

test("a job without a partition counts for its policy, and then for its partition", async (t) => {
  const it = await engine(t, ONE);
  const batch = it.batch(["a"]) as { jobs: { p?: number }[] };
  const jobs = batch.jobs.map(({ p: _, ...job }) => ({ ...job, payload: { k: "a" } }));
  await it.pool.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs }]),
  ]);
  t.is(await it.number("select staged from dispatch_policy.policies"), 1);
  t.is(await it.wrongCounters(), 0);
});

test("arrivals that are merged because their partition is locked are all counted", async (t) => {
  const it = await engine(t, ONE);
  await it.stage("a");
  await it.route();
  const holder = await it.session();
  await holder.query("begin");
  await it.table("partitions", holder).lock();
  await it.stage(["a", "a"]);
  await it.stage("a");
  await it.route();
  t.is(await it.wrongCounters(), 0);
  await holder.query("commit");
  await it.route();
  t.is(await it.wrongCounters(), 0);
  t.deepEqual(await shown(it), [4, 0]);
});

test("two that add a job of one key at once, in two partitions, are counted once", async (t) => {
  const it = await engine(t, ONE);
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  await it.stage("a", { jobKey: "k", as: first });
  const staging = it.stage("b", { jobKey: "k", as: second });
  await it.waitsForLock(second);
  await first.query("commit");
  await staging;
  t.is(await it.wrongCounters(), 0);
  await it.route();
  t.is(await it.wrongCounters(), 0);
  t.deepEqual(await shown(it), [0, 1]);
});

test("a policy that is forgotten page by page leaves no count behind, also if jobs come meanwhile", async (t) => {
  const it = await engine(t, ONE);
  const keys = Array.from({ length: 25 }, (_, n) => `k${n}`);
  await it.stage(keys, { runAt: new Date(Date.now() + HOUR_MS) });
  await it.route();
  await it.pool.query("select * from dispatch_policy.remove(policy => 'p')");
  await inside(it.pool, "select dispatch_policy_internal._forget_policy('p', 10)");
  t.is(await it.table("partitions").count(), 15);
  t.is(await it.wrongCounters(), 0);
  await it.stage(keys);
  t.is(await it.wrongCounters(), 0);
  await t.throwsAsync(inside(it.pool, "select dispatch_policy_internal._forget_policy('p', 10)"), {
    code: "55P03",
  });
  await it.route();
  t.is(await it.wrongCounters(), 0);
});
