// A slot belongs to an admission and an attempt. Graphile Worker's own verbs change a job under it, put another one in its
// row, or start it again: none of them gets past the limits, and no end frees what is another's.
import test from "ava";
import { makeEngine } from "../../../src/db/engine.ts";
import { noEvents } from "../../../src/events.ts";
import { sweepOnce } from "../../../src/operate/sweep.ts";
import { adaptive, concurrency, type Engine, engine, throttle } from "../../helpers/engine.ts";
import {
  addPast,
  admissionOf,
  completeJob,
  type Fetched,
  failJob,
  fetchJob,
  poolLives,
  startJob,
} from "../../helpers/native.ts";
import { silent } from "../../helpers/silent.ts";
import { workerTable } from "../../helpers/table.ts";

const ONE = { gates: [concurrency(1)] };

const countOf = async (it: Engine, key: string) => (await it.limiter("concurrency", key)).in_flight as number;

const tokensOf = async (it: Engine, key = "a") =>
  Math.floor((await it.limiter("throttle", key)).tokens as number);

/** Stages a job, admits it, and has a worker fetch it. */
async function running(it: Engine, partition: string, options: { jobKey?: string } = {}): Promise<Fetched> {
  const before = new Set(await it.inFlight());
  await it.stage(partition, options);
  await it.passes(2);
  const [job] = (await it.inFlight()).filter((id) => !before.has(id));
  return fetchJob(it, job!);
}

test("failed jobs that are run again with no attempts pass the gates again", async (t) => {
  const it = await engine(t, ONE);
  const failed: string[] = [];
  for (let n = 0; n < 3; n++) {
    const { id } = await running(it, "a");
    await failJob(it, id);
    await it.pool.query("select graphile_worker.permanently_fail_jobs($1, 'down')", [[id]]);
    await it.release([{ job: id, ok: false, attempt: 1 } as never]);
    failed.push(id);
  }
  await it.pool.query("select graphile_worker.reschedule_jobs($1, attempts => 0, run_at => now())", [failed]);
  const verdicts: string[] = [];
  for (const id of failed) verdicts.push((await startJob(it, await fetchJob(it, id))).verdict);
  t.deepEqual(verdicts, ["admitted", "copied", "copied"]);
  t.is(await countOf(it, "a"), 1);
});

test("a native job that replaces an admitted one of another partition needs room in its own", async (t) => {
  const it = await engine(t, ONE);
  const keys = ["k0", "k1", "k2"];
  for (const [n, jobKey] of keys.entries()) await it.stage(`a${n}`, { jobKey });
  t.is(await it.passes(), 3);
  const verdicts: string[] = [];
  const started: { id: string; admission: string | null }[] = [];
  for (const key of keys) {
    const id = await addPast(it, { key });
    const { verdict, admission } = await startJob(it, await fetchJob(it, id), { partition: "b" });
    verdicts.push(verdict);
    started.push({ id, admission });
  }
  t.deepEqual(verdicts, ["admitted", "copied", "copied"]);
  t.is(await countOf(it, "b"), 1);
  t.is(await it.wrongCounters(), 0);
  // they occupy the slots of the jobs they replaced until they end, whatever became of them
  t.deepEqual(await Promise.all(["a0", "a1", "a2"].map((key) => countOf(it, key))), [1, 1, 1]);
  for (const { id } of started) await completeJob(it, id);
  await it.release(started.map(({ id, admission }) => ({ job: id, attempt: 1, admission }) as never));
  t.deepEqual(await Promise.all(["a0", "a1", "a2", "b"].map((key) => countOf(it, key))), [0, 0, 0, 0]);
});

test("a native job that replaces an admitted one of its own partition runs in that one's slot", async (t) => {
  const it = await engine(t, ONE);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [job] = await it.inFlight();
  const old = await admissionOf(it, job!);
  const id = await addPast(it, { key: "k" });
  t.is(id, job!, "Graphile Worker reuses the row");
  const { verdict, admission } = await startJob(it, await fetchJob(it, id));
  t.is(verdict, "admitted");
  t.is(await countOf(it, "a"), 1);

  await it.release([{ job: id, attempt: 1, admission: old } as never]);
  t.is(await countOf(it, "a"), 1, "the replaced one's end frees nothing");
  await it.release([{ job: id, attempt: 1, admission } as never]);
  t.is(await countOf(it, "a"), 0);
});

test("so does one that pays tokens, where the cap is below what runs by now and its row has been touched since", async (t) => {
  const it = await engine(t, { gates: [throttle(5, { per: 360_000 }), concurrency(2)] });
  await it.stage("a", { jobKey: "k" });
  await it.stage("a");
  await it.passes();
  await it.pool.query(`select * from dispatch_policy.set_limit('p', 'concurrency', '{"max": 1}')`);
  const fetched = await fetchJob(it, await addPast(it, { key: "k" }));
  await it.pool.query("select graphile_worker.add_job('p', job_key => 'k', job_key_mode => 'unsafe_dedupe')");
  const { verdict, admission } = await startJob(it, fetched);
  t.is(verdict, "admitted");
  t.is(await countOf(it, "a"), 2);
  t.is(await tokensOf(it), 2);
  t.is(await it.wrongCounters(), 0);
  await completeJob(it, fetched.id);
  await it.release([{ job: fetched.id, attempt: 1, admission } as never]);
  t.is(await countOf(it, "a"), 1);
});

test("the successor of a job that failed, and is not released yet, pays its own tokens", async (t) => {
  const it = await engine(t, { gates: [throttle(2, { per: 36_000 }), concurrency(2)] });
  const { id } = await running(it, "a", { jobKey: "k" });
  await failJob(it, id);
  await it.stage("a", { jobKey: "k" });
  t.is(await it.passes(), 1);
  t.deepEqual(await it.inFlight(), [id], "in its row and in its slot");
  t.is(await tokensOf(it), 0);
  t.is(await countOf(it, "a"), 1);
  await fetchJob(it, id);
  await failJob(it, id);
  await it.stage("a", { jobKey: "k" });
  t.is(await it.passes(), 0);
  t.is(await it.wrongCounters(), 0);
});

test("so does that of a job that starts and fails as its successor is admitted", async (t) => {
  const it = await engine(t, { gates: [throttle(3, { per: 36_000 })] });
  await it.waitsLong();
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [id] = (await it.inFlight()) as [string];
  await it.stage("a", { jobKey: "k" });
  await it.route();
  const [worker, ticking] = [await it.session(), await it.session()];
  await worker.query("begin");
  await workerTable(worker).set({ attempts: 1, last_error: "oops" }, { id });
  const tick = it.admit({ as: ticking });
  await it.waitsForLock(ticking);
  await worker.query("commit");
  t.is((await tick).admitted, 1);
  t.is(await tokensOf(it), 1);
});

test("so does a retry whose slot was not freed with its parking", async (t) => {
  const it = await engine(t, { gates: [throttle(3, { per: 36_000 })] });
  const { id } = await running(it, "a");
  const admission = await admissionOf(it, id);
  await failJob(it, id);
  const kept = await it.table("in_flight_jobs").one();
  const retry = { attempt: 1, task: "p", after: 0, maxAttempts: 25 };
  const end = { job: id, ok: false, attempt: 1, admission, retry } as never;
  t.deepEqual(await it.release([end]), [id]);
  // as a release leaves it whose limiters changed meanwhile
  await it.table("in_flight_jobs").add(kept);
  await it.table("limiters").set({ in_flight: (its) => `${its} + 1` }, { id: kept.limiter_ids });
  t.deepEqual([await it.staged(), await it.inFlight()], [1, [id]]);
  t.is(await it.passes(2), 1);
  t.is(await tokensOf(it), 1);
  await it.release([end]);
  t.deepEqual(await it.inFlight(), [id], "the late end is not the retry's");
  t.is(await it.wrongCounters(), 0);
});

for (const tokens of [1, 2]) {
  test(`a native job in a failed one's row needs a token of its own, and no second slot: ${tokens} in all`, async (t) => {
    const it = await engine(t, { gates: [throttle(tokens, { per: 36_000 }), concurrency(1)] });
    const { id } = await running(it, "a", { jobKey: "k" });
    await failJob(it, id);
    t.is(await addPast(it, { key: "k" }), id);
    const { verdict, admission } = await startJob(it, await fetchJob(it, id));
    t.is(verdict, tokens === 1 ? "copied" : "admitted");
    t.is(await tokensOf(it), 0);
    t.is(await countOf(it, "a"), 1);
    await completeJob(it, id);
    await it.release([{ job: id, attempt: 1, admission } as never]);
    t.is(await countOf(it, "a"), 0);
    t.is(await it.wrongCounters(), 0);
  });
}

for (const stop of ["hold('p', 'a', now() + interval '1 hour')", "pause('p', 'a')", "pause('p')"]) {
  test(`nor does it run in that one's slot after ${stop}`, async (t) => {
    const it = await engine(t, ONE);
    const { id } = await running(it, "a", { jobKey: "k" });
    await it.pool.query(`select dispatch_policy.${stop}`);
    await failJob(it, id);
    await addPast(it, { key: "k" });
    t.is((await startJob(it, await fetchJob(it, id))).verdict, "copied");
    t.is(await it.staged(), 1);
  });
}

test("a job that replaces an admitted, waiting one pays what it costs more", async (t) => {
  const it = await engine(t, { gates: [throttle(20, { per: 360_000 })] });
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  t.is(await tokensOf(it), 19);
  const left = { 1: 19, 9: 11, 4: 11, 10: 10 };
  for (const cost of [1, 9, 4, 10]) {
    await it.stage("a", { jobKey: "k", cost });
    t.is(await it.passes(), 1);
    t.is(await tokensOf(it), left[cost as keyof typeof left], `cost ${cost}`);
  }
  t.is((await it.inFlight()).length, 1);
});

for (const copies of ["the flags of the job it replaces", "those of another one"]) {
  test(`a native job with ${copies} is asked for its own partition`, async (t) => {
    const it = await engine(t, ONE);
    await it.stage("a", { jobKey: "k" });
    await it.stage("c");
    await it.passes();
    await running(it, "b");
    const [row] = (
      await it.pool.query("select flags from graphile_worker.jobs where (key is not null) = $1", [
        copies === "the flags of the job it replaces",
      ])
    ).rows;
    const id = await addPast(it, { key: "k", flags: Object.keys(row.flags) });
    const { verdict } = await startJob(it, await fetchJob(it, id), { partition: "b" });
    t.is(verdict, "copied", "b is full");
    t.is(await countOf(it, "b"), 1);
  });
}

test("past the gates, one that replaced an admitted job counts in both places", async (t) => {
  const it = await engine(t, ONE);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  await running(it, "b");
  const id = await addPast(it, { key: "k" });
  const { verdict, admission } = await startJob(it, await fetchJob(it, id), {
    partition: "b",
    unmanaged: "run",
  });
  t.is(verdict, "admitted");
  t.deepEqual([await countOf(it, "a"), await countOf(it, "b")], [1, 2]);
  t.is(await it.wrongCounters(), 0);
  await it.release([{ job: id, attempt: 1, admission } as never]);
  t.deepEqual([await countOf(it, "a"), await countOf(it, "b")], [0, 1]);
});

test("the late release of a job whose row another one of its key was admitted in frees nothing", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  const { id } = await running(it, "a", { jobKey: "k" });
  const first = await admissionOf(it, id);
  await failJob(it, id); // Graphile Worker retries it by itself: retries that bypass the gates
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  t.deepEqual(await it.inFlight(), [id]);
  await it.release([{ job: id, ok: false, attempt: 1, admission: first } as never]);
  t.deepEqual(await it.inFlight(), [id], "it is the new one's slot");
  await it.stage(["a", "a"]);
  t.is(await it.passes(3), 1, "cap 2");
});

test("nor does it park the new one", async (t) => {
  const it = await engine(t, { gates: [concurrency(2)] });
  const { id } = await running(it, "a", { jobKey: "k" });
  const first = await admissionOf(it, id);
  await failJob(it, id);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  await fetchJob(it, id);
  await failJob(it, id);
  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
  await it.release([{ job: id, ok: false, attempt: 1, admission: first, retry } as never]);
  t.is(await it.staged(), 0);
  t.is(await countOf(it, "a"), 1);
});

for (const starts of [false, true]) {
  test(`a job that has not started is released into staging${starts ? ", unless it starts meanwhile" : ""}`, async (t) => {
    const it = await engine(t, ONE);
    await it.waitsLong();
    await it.stage(["a", "a"]);
    await it.passes();
    const [job] = await it.inFlight();
    const operator = await it.session();
    if (starts) {
      // it is fetched after the release has looked, and before it parks
      const worker = await it.session();
      await worker.query("begin");
      await fetchJob(it, job!, "w", worker);
      const releasing = operator.query("select * from dispatch_policy.release_slots($1)", [job]);
      await it.waitsForLock(operator);
      await worker.query("commit");
      t.deepEqual((await releasing).rows, [{ matched: 1, changed: 1 }]);
      t.is(await it.staged(), 1, "the other one");
      t.is(await it.passes(2), 1);
      return;
    }
    const { rows } = await operator.query("select * from dispatch_policy.release_slots($1)", [job]);
    t.deepEqual(rows, [{ matched: 1, changed: 1 }]);
    t.is(await it.staged(), 2);
    t.is(await countOf(it, "a"), 0);
    t.is(await it.passes(3), 1);
    t.is((await it.inFlight()).length, 1);
    const waiting = "select count(*)::int from graphile_worker.jobs where run_at <= now()";
    t.is(await it.number(waiting), 1, "one job can start");
    t.is(await it.wrongCounters(), 0);
  });
}

test("a slot that a sweep found overdue is not taken from the job's next attempt", async (t) => {
  const it = await engine(t, { ...ONE, slotTimeout: 60 });
  const job = await running(it, "a");
  const { admission } = await startJob(it, job);
  await workerTable(it.pool).set({ locked_at: () => "now() - interval '2 minutes'" });
  await it.table("in_flight_jobs").set({ started_at: (its) => `${its} - interval '2 minutes'` });
  const sql = makeEngine("dispatch_policy");
  let found: unknown[] = [];
  const { repaired } = await sweepOnce({
    ...{ withPgClient: (callback) => callback(it.pool as never), events: noEvents, logger: silent },
    ages: { partitionInactiveAfterMs: 1e9, keepAuditForMs: 1e9, metricsRetentionMs: 6e8 },
    engine: {
      ...sql,
      // before the sweep releases what it found, the job fails, waits, and runs again
      sweepOverdue: async (client) => {
        const overdue = await sql.sweepOverdue(client);
        found = overdue;
        await failJob(it, job.id);
        const retry = { attempt: 1, task: "p", after: 0, maxAttempts: 25 };
        await it.release([{ job: job.id, ok: false, attempt: 1, admission, retry } as never]);
        t.is(await it.passes(2), 1);
        await startJob(it, await fetchJob(it, job.id));
        return overdue;
      },
    },
  });
  t.is(found.length, 1);
  t.is(repaired.overdue, 0);
  t.is(await countOf(it, "a"), 1);
  t.deepEqual(await it.inFlight(), [job.id]);
});

for (const [what, unlocked] of Object.entries({
  "a sweep unlocked it": { attempt: 2, pool_id: null },
  "it was unlocked past the package": { attempt: null },
  "its retry was unlocked past the package": { attempt: 1, pool_id: "worker" },
})) {
  test(`an attempt whose number comes again has the slot to itself: ${what}`, async (t) => {
    const it = await engine(t, ONE);
    const first = await running(it, "a");
    const old = await admissionOf(it, first.id);
    await it.table("in_flight_jobs").set(unlocked);
    await it.pool.query("select graphile_worker.force_unlock_workers('{worker}')");
    await it.pool.query("select graphile_worker.reschedule_jobs($1, attempts => 0)", [[first.id]]);
    const again = await fetchJob(it, first.id, "another");
    t.is(again.attempts, first.attempts);
    const { verdict, admission } = await startJob(it, again, { poolId: "another" });
    t.is(verdict, "known");

    await it.release([{ job: first.id, attempt: 1, admission: old } as never]);
    t.is(await countOf(it, "a"), 1, "the late end of the first");
    await it.release([{ job: first.id, attempt: 1, admission } as never]);
    t.is(await countOf(it, "a"), 0);
    t.is(await it.wrongCounters(), 0);
  });
}

for (const noted of [true, false]) {
  test(`a slot whose release came too late is found once its job is gone, its pool alive, its start ${noted ? "" : "not "}noted`, async (t) => {
    const it = await engine(t, ONE);
    await poolLives(it, "worker", 1);
    const job = await running(it, "a");
    if (noted) await startJob(it, job);
    const admission = await admissionOf(it, job.id);
    await failJob(it, job.id, 0);
    await it.pool.query("select graphile_worker.reschedule_jobs($1, attempts => 0)", [[job.id]]);
    const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
    await it.release([{ job: job.id, ok: false, attempt: 1, admission, retry } as never]);
    t.is(await countOf(it, "a"), 1);
    await completeJob(it, job.id);
    await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
    const { rows } = await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
    const found = rows.filter(({ job_id }) => job_id !== null);
    await it.release(found.map(({ job_id, ...rest }) => ({ job: job_id, ...rest })));
    t.is(await countOf(it, "a"), 0);
  });
}

test("a job is overdue from its recorded start, not from its fetch", async (t) => {
  const it = await engine(t, { ...ONE, slotTimeout: 60 });
  const job = await running(it, "a");
  await workerTable(it.pool).set({ locked_at: () => "now() - interval '2 minutes'" });
  const overdue = () => it.number("select count(*)::int from dispatch_policy_internal._sweep_overdue()");
  t.is(await overdue(), 1);
  await startJob(it, { ...job, locked_at: null });
  t.is(await overdue(), 0);
  await it.table("in_flight_jobs").set({ started_at: (its) => `${its} - interval '2 minutes'` });
  t.is(await overdue(), 1);
});

test("a job that is admitted and then postponed frees its slot, and waits in staging until its time", async (t) => {
  const it = await engine(t, ONE);
  await it.stage(["a", "a"]);
  await it.passes();
  const [job] = await it.inFlight();
  await it.pool.query("select graphile_worker.reschedule_jobs($1, run_at => now() + interval '1 day')", [
    [job],
  ]);
  await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
  const { rows } = await it.pool.query("select * from dispatch_policy_internal._sweep_in_flight('0')");
  const found = rows.filter(({ job_id }) => job_id !== null);
  t.is(found.length, 1);
  await it.release(found.map(({ job_id, ...rest }) => ({ job: job_id, ...rest })));
  t.is(await it.passes(2), 1, "the other one goes");
  t.deepEqual((await it.inFlight()).length, 1);
  const [put] = (
    await it.pool.query(
      "select run_at > now() + interval '23 hours' as later from dispatch_policy.staged_jobs",
    )
  ).rows;
  t.deepEqual(put, { later: true });
  t.is(await it.wrongCounters(), 0);
});

test("a job that was copied before a crash is not staged again when it is rescheduled", async (t) => {
  const it = await engine(t, ONE);
  await it.stage("a");
  await it.passes();
  const { flags } = (await it.pool.query("select flags from graphile_worker.jobs")).rows[0];
  const id = await addPast(it, { flags: Object.keys(flags) });
  t.is((await startJob(it, await fetchJob(it, id))).verdict, "copied");
  // its worker dies before the original completes
  await it.pool.query("select graphile_worker.force_unlock_workers('{worker}')");
  await it.pool.query("select dispatch_policy.reschedule_jobs($1, priority => 1)", [[id]]);
  t.is(await it.staged(), 1, "the copy");
  t.is((await startJob(it, await fetchJob(it, id))).verdict, "copied");
  t.is(await it.staged(), 1);
});

test("a slot is freed once, however often its release is sent", async (t) => {
  const it = await engine(t, { gates: [concurrency(2), adaptive(5)] });
  const { id } = await running(it, "a");
  const admission = await admissionOf(it, id);
  await completeJob(it, id);
  const end = { job: id, attempt: 1, admission } as never;
  await it.release([end, end]);
  await it.release([end]);
  t.is(await it.wrongCounters(), 0);
});

test("a job that failed twice as its first attempt is parked once", async (t) => {
  const it = await engine(t, ONE);
  const { id } = await running(it, "a");
  const admission = await admissionOf(it, id);
  await failJob(it, id);
  await it.pool.query("select graphile_worker.reschedule_jobs($1, attempts => 0, run_at => now())", [[id]]);
  const again = await startJob(it, await fetchJob(it, id));
  t.is(again.verdict, "known");
  await failJob(it, id);
  const ended = (by: unknown, retry: object) =>
    ({ job: id, ok: false, attempt: 1, admission: by, retry }) as never;
  const after = ended(again.admission, { attempt: 1, task: "p", after: 60, maxAttempts: 25 });
  t.deepEqual(await it.release([ended(admission, { attempt: 1, giveUp: true }), after]), [id]);
  t.is(await it.staged(), 1);
  t.is(await it.wrongCounters(), 0);
});
