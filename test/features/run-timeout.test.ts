// A run that lasts for longer than its policy's runTimeout is told to end, and its attempt fails.
import test from "ava";
import type { JobHelpers } from "graphile-worker";
import { concurrency, definePolicy, policyEvents, RetryAfter, RunTimeoutError } from "../../src/index.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const options = { partitionBy: "account", gates: [concurrency({ max: 1 })] };
const account = { account: "a" };
const MESSAGE = /^job \d+ of task "work" ran for longer than its runTimeout of 0\.05 s$/;

/** Resolves when the signal aborts. */
const aborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });

test("the signal of this run alone aborts, its attempt fails, and the job is retried", async (t) => {
  const errors: unknown[] = [];
  const policy = definePolicy("work", {
    ...options,
    runTimeout: "50 milliseconds",
    backoff: (error) => {
      errors.push(error);
      return "1 millisecond";
    },
  });
  const other = definePolicy("other", { partitionBy: "account" });
  let tell = () => {};
  const reasons: unknown[] = [];
  const seen: { aborted?: boolean } = {};
  const worker = await startWorker(t, {
    policies: [policy, other],
    tasks: {
      async work(_payload, { abortSignal, abortPromise, job }: JobHelpers) {
        if (job.attempts > 1) return;
        await aborted(abortSignal);
        reasons.push(abortSignal.reason, await abortPromise.catch((error) => error));
        throw new Error("its own");
      },
      async other(_payload, { abortSignal }: JobHelpers) {
        await new Promise<void>((resolve) => {
          tell = resolve;
        });
        seen.aborted = abortSignal.aborted;
      },
    },
  });
  const told: unknown[] = [];
  policyEvents(worker.runner.events).on("dispatchPolicy:runTimeout", (event) => told.push(event));
  await worker.utils.addJob(other, account);
  await worker.sees("job:start");
  await worker.utils.addJob(policy, account);
  const [failed] = await worker.sees("job:error");
  await worker.sees("job:success");
  t.regex(failed!.error!, MESSAGE);
  const [error] = errors as [RunTimeoutError];
  t.true(error instanceof RunTimeoutError);
  t.deepEqual(reasons, [error, error]);
  t.like(error, { code: "run_timeout", timeoutMs: 50 });
  t.is((error.cause as Error).message, "its own");
  t.like(told[0], { policy: "work", jobId: error.jobId, attempt: 1, timeoutMs: 50 });
  tell();
  await worker.everythingIsReleased();
  t.false(seen.aborted);
});

test("a task that ignores its signal keeps its slot until it returns, and has failed then", async (t) => {
  const policy = definePolicy("work", { ...options, runTimeout: "50 milliseconds", backoff: () => false });
  const ends: (() => void)[] = [];
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { work: () => new Promise<void>((resolve) => void ends.push(resolve)) },
  });
  const told: unknown[] = [];
  policyEvents(worker.runner.events).on("dispatchPolicy:runTimeout", (event) => told.push(event));
  for (const _ of [1, 2]) await worker.utils.addJob(policy, account);
  await until("it is told to end", () => told.length === 1);
  t.is(ends.length, 1);
  t.is((await worker.row("select count(*)::int as n from dispatch_policy.in_flight_jobs")).n, 1);
  ends[0]!();
  const [failed] = await worker.sees("job:error");
  t.regex(failed!.error!, MESSAGE);
  await until("the second runs", () => ends.length === 2);
  ends[1]!();
  await worker.everythingIsReleased();
});

test("a RetryAfter of a run past its time counts, and a run in time is left alone", async (t) => {
  const policy = definePolicy("work", { ...options, runTimeout: "50 milliseconds" });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      async work(payload, { abortSignal }: JobHelpers) {
        if ((payload as { quick?: true }).quick) return;
        await aborted(abortSignal);
        throw new RetryAfter("1 hour", { reason: "429" });
      },
    },
  });
  await worker.utils.addJob(policy, { account: "quick", quick: true });
  await worker.sees("job:success");
  await worker.utils.addJob(policy, account);
  const [failed] = await worker.sees("job:error");
  t.regex(failed!.error!, /429/);
  await worker.everythingIsReleased();
});

test("in a batch, the parts that settle after the time have failed, and the others have not", async (t) => {
  const policy = definePolicy("work", {
    context: () => ({}),
    partitionBy: () => "all",
    runTimeout: "50 milliseconds",
    backoff: () => "1 hour",
  });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      work: (async (_payload: unknown, { abortSignal }: JobHelpers) => [
        Promise.resolve(),
        aborted(abortSignal),
      ]) as never,
    },
  });
  await worker.utils.addJob("work", ["in time", "late"] as never);
  await worker.sees("job:error");
  await worker.everythingIsReleased();
  const { payload } = await workerTable(worker.pool).one();
  t.deepEqual(payload, ["late"]);
});

test("the pool's shutdown aborts the run's signal as well", async (t) => {
  const policy = definePolicy("work", { ...options, runTimeout: "1 hour" });
  let reason: unknown;
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      async work(_payload, { abortSignal }: JobHelpers) {
        await aborted(abortSignal);
        ({ reason } = abortSignal);
      },
    },
    worker: { gracefulShutdownAbortTimeout: 1 },
  });
  await worker.utils.addJob(policy, account);
  await worker.sees("job:start");
  await worker.stop();
  t.is((reason as Error).name, "AbortError");
});

test("what a definition refuses", (t) => {
  const define = (more: object) => () => definePolicy("work", { ...options, ...more } as never);
  t.throws(define({ runTimeout: 0 }), { message: /runTimeout must be/ });
  t.throws(define({ runTimeout: "25 days" }), {
    message: /runTimeout must be 24 days or less, got "25 days"/,
  });
  t.throws(define({ runTimeout: "1 minute", slotTimeout: "1 minute" }), {
    message: /runTimeout must be shorter than slotTimeout \("1 minute"\), got "1 minute"/,
  });
});
