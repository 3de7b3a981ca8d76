// A run's own signal, and the warning about a run that ignores it. The timers are Node's mocks, because the warning comes
// after 10 seconds.
import { getEventListeners } from "node:events";
import { mock } from "node:test";
import test from "ava";
import { type JobHelpers, Logger } from "graphile-worker";
import { CancelledError, RunTimeoutError } from "../../src/index.ts";
import { RunSignal } from "../../src/run/run-signal.ts";
import { watchRun } from "../../src/run/run-timeout.ts";

function helpersOf(lines: string[]) {
  const pool = new AbortController();
  const logger = new Logger(() => (_level, message) => void lines.push(message));
  const job = { id: "1", task_identifier: "work" };
  const helpers = { job, logger, abortSignal: pool.signal } as unknown as JobHelpers;
  return { pool, helpers, signal: new RunSignal(helpers) };
}

test.serial("a run that goes on is warned about once, and one that ended is not", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const lines: string[] = [];
  for (const ignores of [true, false]) {
    const { helpers, signal } = helpersOf(lines);
    const watch = watchRun(helpers, signal, 1000, () => {});
    let end = () => {};
    const ended = watch(async () => {
      await new Promise<void>((resolve) => {
        end = resolve;
      });
      return { result: undefined };
    });
    mock.timers.tick(1000);
    t.true(helpers.abortSignal.reason instanceof RunTimeoutError);
    if (ignores) mock.timers.tick(10_000);
    end();
    t.like(await ended, { error: { code: "run_timeout" } });
    signal.end();
    mock.timers.tick(100_000);
  }
  t.deepEqual(lines, [
    'job 1 of task "work" ran for longer than its runTimeout of 1 s. It was told to end 10 s ago, and goes on. It keeps ' +
      'its slot until it ends. Let the task "work" heed helpers.abortSignal',
  ]);
});

test.serial("a run that ended in time leaves no timer, and no longer aborts with the pool", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const { pool, helpers, signal } = helpersOf([]);
  t.false(helpers.abortSignal.aborted);
  const watch = watchRun(helpers, signal, 1000, () => t.fail());
  t.deepEqual(await watch(async () => ({ result: undefined })), { result: undefined });
  signal.end();
  mock.timers.tick(10_000);
  pool.abort();
  t.false(helpers.abortSignal.aborted);
});

test.serial("a pool that has shut down already aborts the run's signal", (t) => {
  const { pool, helpers } = helpersOf([]);
  pool.abort();
  t.is(helpers.abortSignal.reason, pool.signal.reason);
});

test.serial("a list that is no batch's result has failed after the time, as any other result", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const { helpers, signal } = helpersOf([]);
  const watch = watchRun(helpers, signal, 1000, () => {});
  const ended = await watch(async () => {
    mock.timers.tick(1000);
    return { result: [1, 2] };
  });
  t.like(ended, { error: { code: "run_timeout" } });
});

test.serial(
  "a signal that nobody has looked at yet has aborted all the same, and so has the promise",
  async (t) => {
    mock.timers.enable({ apis: ["setTimeout"] });
    t.teardown(() => mock.timers.reset());
    const { pool, helpers, signal } = helpersOf([]);
    const cancelled = new CancelledError("1", { by: "ana", reason: null });
    signal.abort(cancelled);
    t.is(signal.cancelled, cancelled);
    t.is(helpers.abortSignal.reason, cancelled);
    t.is(await helpers.abortPromise.catch((error) => error), cancelled);
    pool.abort();
    t.is(helpers.abortSignal.reason, cancelled, "the first reason stays");
    signal.end();
  },
);

test.serial("a run past its time can still be cancelled; one that has ended is told nothing", (t) => {
  const { helpers, signal } = helpersOf([]);
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const late = new RunTimeoutError(helpers.job, 1000);
  const cancelled = new CancelledError("1", { by: "ana", reason: "wrong batch" });
  signal.abort(late);
  signal.abort(cancelled);
  t.is(helpers.abortSignal.reason, late);
  t.is(signal.cancelled?.message, "job 1 was cancelled by ana: wrong batch");
  const { helpers: others, signal: ended } = helpersOf([]);
  ended.end();
  ended.abort(cancelled);
  t.false(others.abortSignal.aborted);
  t.is(ended.cancelled, cancelled, "its release must know");
  signal.end();
});

test.serial("a copy of the helpers has the run's own signal and promise", async (t) => {
  const { pool, helpers, signal } = helpersOf([]);
  const { abortSignal, abortPromise } = { ...helpers };
  t.not(abortSignal, pool.signal);
  const cancelled = new CancelledError("1", { by: "ana", reason: null });
  signal.abort(cancelled);
  t.is(abortSignal.reason, cancelled);
  t.is(await abortPromise.catch((error) => error), cancelled);
  signal.end();
});

test.serial("all runs of a pool abort with it, and its signal has one listener", async (t) => {
  const { pool, helpers } = helpersOf([]);
  const { signal: ofPool } = pool;
  const others = [1, 2].map(() => ({ ...helpers, abortSignal: ofPool }));
  const [running, ended] = others.map((one) => new RunSignal(one));
  t.is(getEventListeners(ofPool, "abort").length, 1);
  ended!.end();
  pool.abort(new Error("shutdown"));
  const reasons = [helpers, ...others].map(({ abortSignal }) => abortSignal.reason?.message);
  t.deepEqual(reasons, ["shutdown", "shutdown", undefined]);
  t.is(await others[0]!.abortPromise.catch((error) => error), ofPool.reason);
  running!.end();
});
