// A job that runs is cancelled: its run is told to end, and fails for good unless it succeeds.
import test from "ava";
import type { JobHelpers } from "graphile-worker";
import pg from "pg";
import {
  CancelledError,
  concurrency,
  definePolicy,
  makePolicyUtils,
  policyEvents,
  RetryAfter,
} from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { table, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker, type TestWorker } from "../helpers/worker.ts";

const options = { partitionBy: "account", gates: [concurrency({ max: 1 })] };
const account = { account: "a" };
const why = { reason: "wrong batch", by: "ana" };

/** Resolves when the signal aborts. */
const aborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });

const jobsOf = async ({ pool }: TestWorker) =>
  (await pool.query("select last_error, attempts >= max_attempts as ended from graphile_worker.jobs")).rows;

test("the signal of this run alone aborts, the job has failed for good, and its slot is freed", async (t) => {
  const errors: unknown[] = [];
  const policy = definePolicy("work", {
    ...options,
    backoff: (error) => {
      errors.push(error);
      return "1 millisecond";
    },
  });
  const seen: { reason?: unknown; promised?: unknown; other?: boolean } = {};
  let tell = () => {};
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      async work(payload, { abortSignal, abortPromise }: JobHelpers) {
        if ((payload as { account: string }).account === "b") {
          await new Promise<void>((resolve) => {
            tell = resolve;
          });
          seen.other = abortSignal.aborted;
          return;
        }
        await aborted(abortSignal);
        seen.reason = abortSignal.reason;
        seen.promised = await abortPromise.catch((error) => error);
        throw new Error("its own");
      },
    },
    preset: NO_HEARTBEAT,
  });
  const told: unknown[] = [];
  policyEvents(worker.runner.events).on("dispatchPolicy:runCancelled", (event) => told.push(event));
  await worker.utils.addJob(policy, { account: "b" });
  await worker.utils.addJob(policy, account);
  await worker.sees("job:start", 2);
  t.deepEqual(await worker.utils.cancel({ policy: "work", partition: "a", dryRun: true }), {
    ...{ matched: 1, changed: 0, running: 1 },
  });
  t.deepEqual(await worker.utils.cancel({ policy: "work", partition: "a", ...why }), {
    ...{ matched: 1, changed: 1, running: 1 },
  });
  const [failed] = await worker.sees("job:error");
  t.is(failed!.error, `job ${failed!.id} was cancelled by ana: wrong batch`);
  const cancelled = seen.reason as CancelledError;
  t.true(cancelled instanceof CancelledError);
  t.like(cancelled, { code: "cancelled", jobId: failed!.id, ...why });
  t.is(seen.promised, cancelled);
  t.is((cancelled.cause as Error).message, "its own");
  t.deepEqual(told, [{ policy: "work", jobId: failed!.id, attempt: 1, ...why }]);
  tell();
  await worker.everythingIsReleased();
  t.false(seen.other);
  t.deepEqual(errors, [], "there is no retry");
  t.deepEqual(await jobsOf(worker), [{ last_error: failed!.error, ended: true }]);
  const retried = await worker.utils.retry({ policy: "work", error: "cancelled by ana", dryRun: true });
  t.is(retried.matched, 1);
});

test("a task that ignores its signal keeps its slot until it returns, and has succeeded then", async (t) => {
  const policy = definePolicy("work", options);
  const ends: (() => void)[] = [];
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { work: () => new Promise<void>((resolve) => void ends.push(resolve)) },
  });
  const told: unknown[] = [];
  policyEvents(worker.runner.events).on("dispatchPolicy:runCancelled", (event) => told.push(event));
  const [first, second] = [
    await worker.utils.addJob(policy, account),
    await worker.utils.addJob(policy, account),
  ];
  await worker.sees("job:start");
  t.is((await worker.utils.cancel({ ids: [first.id], ...why })).running, 1);
  await until("it is told to end", () => told.length === 1);
  t.is(ends.length, 1);
  t.is((await worker.utils.explain({ id: second.id })).reason, "concurrency_full");
  ends[0]!();
  await worker.sees("job:success");
  await until("the second runs", () => ends.length === 2);
  ends[1]!();
  await worker.everythingIsReleased();
  t.deepEqual(await jobsOf(worker), []);
});

test("explain and the view say who cancelled it, and why", async (t) => {
  const policy = definePolicy("work", options);
  let end = () => {};
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      work: () =>
        new Promise<void>((resolve) => {
          end = resolve;
        }),
    },
  });
  const { id } = await worker.utils.addJob(policy, account);
  await worker.sees("job:start");
  t.is((await worker.utils.explain({ id })).cancelled, null);
  await worker.utils.cancel({ ids: [id], ...why });
  const it = await worker.utils.explain({ id });
  t.like(it, { state: "running", cancelled: why, cancelledBy: "ana", cancelReason: "wrong batch" });
  t.true(it.cancelled!.at instanceof Date && it.cancelledAt instanceof Date);
  t.regex(
    it.sentence,
    /^It has run for \d+ m?s\. ana cancelled it \d+ m?s ago \(wrong batch\)\. Its run was told to end\.$/,
  );
  end();
  await worker.everythingIsReleased();
});

for (const [what, more, error] of [
  ["that throws RetryAfter", {}, () => new RetryAfter("1 millisecond")],
  ["whose attempts would not count", { refundAttempt: true }, () => new RetryAfter("1 millisecond")],
  ["whose retries go past the gates", { retries: "bypass" }, () => new Error("its own")],
  ["that lasts for too long as well", { runTimeout: "50 milliseconds" }, () => new Error("its own")],
] as const) {
  test(`a cancelled run ${what} has failed for good`, async (t) => {
    const policy = definePolicy("work", { ...options, ...more, backoff: () => "1 millisecond" });
    let fail = (_: Error) => {};
    const worker = await startWorker(t, {
      policies: [policy],
      tasks: {
        work: () =>
          new Promise<void>((_, reject) => {
            fail = reject;
          }),
      },
    });
    const told: string[] = [];
    const events = policyEvents(worker.runner.events);
    events.on("dispatchPolicy:runCancelled", () => told.push("cancelled"));
    events.on("dispatchPolicy:runTimeout", () => told.push("late"));
    await worker.utils.addJob(policy, account);
    await worker.sees("job:start");
    if ("runTimeout" in more) await until("it is late", () => told.includes("late"));
    await worker.utils.cancel({ policy: "work", ...why });
    await until("it is told to end", () => told.includes("cancelled"));
    fail(error());
    const [failed] = await worker.sees("job:error");
    t.regex(failed!.error!, /^job \d+ was cancelled by ana: wrong batch$/);
    await worker.everythingIsReleased();
    t.deepEqual(await jobsOf(worker), [{ last_error: failed!.error, ended: true }]);
    t.is(worker.happened.filter(({ event }) => event === "job:start").length, 1);
  });
}

test("in a batch, the parts that fail after a cancel do not come back", async (t) => {
  const policy = definePolicy("work", {
    context: () => ({}),
    partitionBy: () => "all",
    backoff: () => "1 millisecond",
  });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      work: (async (_payload: unknown, { abortPromise }: JobHelpers) => [
        Promise.resolve(),
        abortPromise,
      ]) as never,
    },
  });
  await worker.utils.addJob("work", ["in time", "late"] as never);
  await worker.sees("job:start");
  await worker.utils.cancel({ policy: "work", ...why });
  await worker.sees("job:error");
  await worker.everythingIsReleased();
  const [job] = await jobsOf(worker);
  t.true(job.ended);
  t.regex(job.last_error, /cancelled by ana: wrong batch/);
});

test("a cancel that nobody was notified of is found by a heartbeat", async (t) => {
  const policy = definePolicy("work", options);
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { work: (_payload: unknown, { abortPromise }: JobHelpers) => abortPromise },
    preset: { workerHeartbeatInterval: "500 milliseconds" },
  });
  await worker.utils.addJob(policy, account);
  await worker.sees("job:start");
  await table(worker.pool, "in_flight_jobs").set({ cancelled_at: () => "now()", cancelled_by: "ana" });
  const [failed] = await worker.sees("job:error");
  t.regex(failed!.error!, /^job \d+ was cancelled by ana$/);
  await worker.everythingIsReleased();
});

test("a cancelled job whose worker ended without it does not run when it starts again", async (t) => {
  const policy = definePolicy("work", options);
  const database = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJob(policy, account);
  await utils.tick({ policy: "work" });
  const jobs = workerTable(database.pool);
  await jobs.set({ locked_at: new Date(), locked_by: "gone", attempts: 1 });
  t.is((await utils.cancel({ policy: "work", ...why })).running, 1);
  await jobs.set({ locked_at: null, locked_by: null });
  const [{ id }] = (await database.pool.query("select id from graphile_worker.jobs")).rows;
  t.regex(
    (await utils.explain({ id })).sentence,
    /ana cancelled it .* ago \(wrong batch\)\. The worker that fetches it ends it without running it\.$/,
  );
  const worker = await startWorker(t, {
    database,
    policies: [policy],
    tasks: { work: () => t.fail("it ran") },
  });
  const [failed] = await worker.sees("job:error");
  t.is(failed!.error, `job ${id} was cancelled by ana: wrong batch`);
  await worker.everythingIsReleased();
  t.deepEqual(await jobsOf(worker), [{ last_error: failed!.error, ended: true }]);
});

test("the first attempt of a job that nobody has cancelled asks nothing", async (t) => {
  const policy = definePolicy("work", options);
  const database = await testDatabase(t);
  const asked: string[] = [];
  class RecordingClient extends pg.Client {
    // biome-ignore lint/suspicious/noExplicitAny: pg's own overloads
    override query(...[query, ...rest]: any[]): any {
      asked.push(typeof query === "string" ? query : query.text);
      return super.query(query, ...(rest as []));
    }
  }
  const pool = quietPool(database.url, { Client: RecordingClient as never });
  t.teardown(() => pool.end());
  const worker = await startWorker(t, {
    database: { ...database, pool },
    policies: [policy],
    tasks: { work: () => {} },
    preset: NO_HEARTBEAT,
  });
  await worker.utils.addJob(policy, account);
  await worker.sees("job:success");
  await worker.everythingIsReleased();
  t.true(asked.some((text) => text.includes(".enqueue")));
  t.deepEqual(
    asked.filter((text) => /_start_attempt|_cancelled_jobs/.test(text)),
    [],
  );
});

test("a long backlog is cancelled step by step", async (t) => {
  const { pool } = await testDatabase(t);
  const policy = definePolicy("work", options);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJobs(Array.from({ length: 1100 }, () => ({ identifier: "work", payload: account })));
  t.is((await utils.tick()).admitted, 1);
  t.deepEqual(await utils.cancel({ policy: "work", ...why }), { matched: 1100, changed: 1100, running: 0 });
  const { rows } = await pool.query("select changed, reason from dispatch_policy.audit order by id");
  t.deepEqual(
    rows.map(({ changed }) => changed),
    [501, 500, 99, 0],
    "the last step begins anew, for jobs that have come back to staging",
  );
  t.is(rows[2].reason, "wrong batch");
  const { rows: left } = await pool.query(`select count(*)::int as n from dispatch_policy.in_flight_jobs`);
  t.is(left[0].n, 0, "the slot is back");
});
