// The newest job of a key wins (`whenRunning: "cancel"`): through the public API, with workers.
import test from "ava";
import type { JobHelpers } from "graphile-worker";
import { type AnyPolicy, type CancelledError, concurrency, definePolicy } from "../../src/index.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker, type TestWorker } from "../helpers/worker.ts";

interface Run {
  readonly n: number;
  readonly signal: AbortSignal;
  /** Undefined: it runs. */
  how?: "done" | "cancelled";
  end(): void;
  /** Heeds its signal. */
  stop(): void;
}

const cancelling = { partitionBy: "key", whenRunning: "cancel" } as const;

/** Runs end when they are told to: by the test, or by their signals if they heed these. */
async function world(
  t: Parameters<typeof startWorker>[0],
  policy: AnyPolicy,
  { heeds = true, ...options }: { heeds?: boolean; worker?: GraphileConfig.WorkerOptions } = {},
) {
  const runs: Run[] = [];
  let most = 0;
  const task = async (payload: unknown, { abortSignal: signal }: JobHelpers) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const run: Run = {
      n: (payload as { n: number }).n,
      signal,
      end: resolve,
      stop: () => reject(signal.reason),
    };
    runs.push(run);
    most = Math.max(most, runs.filter(({ how }) => how === undefined).length);
    if (heeds) signal.addEventListener("abort", run.stop);
    await promise.then(
      () => {
        run.how = "done";
      },
      (error) => {
        run.how = "cancelled";
        throw error;
      },
    );
  };
  const tasks = { work: task };
  const worker = await startWorker(t, { policies: [policy], tasks, preset: NO_HEARTBEAT, ...options });
  t.teardown(() => {
    for (const { end } of runs) end();
  });
  const add = (n: number, spec: object = {}) =>
    worker.utils.addJob(policy, { key: "a", n } as never, { jobKey: "k", ...spec });
  const began = (count: number) => until(`${count} have begun`, () => runs.length >= count);
  const all = () => runs.map(({ n, how }) => [n, how]);
  return { worker, runs, add, began, all, most: () => most };
}

const failed = async ({ pool }: TestWorker) =>
  (await workerTable(pool).all()).map((row) => [row.last_error, row.attempts >= row.max_attempts]);

test("scenario 46: a burst of ten leaves one cancelled run and one that runs, and no two run at once", async (t) => {
  const policy = definePolicy("work", { ...cancelling, gates: [concurrency({ max: 5 })] });
  const it = await world(t, policy, { heeds: false });
  await it.add(1);
  await it.began(1);
  for (let n = 2; n <= 10; n++) await it.add(n);
  await until("the first is told", () => it.runs[0]!.signal.aborted);
  it.runs[0]!.stop();
  await it.began(2);
  t.deepEqual(it.all(), [
    [1, "cancelled"],
    [10, undefined],
  ]);
  t.is(it.most(), 1);
  it.runs[1]!.end();
  await it.worker.everythingIsReleased();
  t.is((await failed(it.worker)).length, 1, "the cancelled run has failed for good");
});

test("scenario 46: ten in one transaction leave one cancelled run and one that runs", async (t) => {
  const it = await world(t, definePolicy("work", { ...cancelling, gates: [concurrency({ max: 1 })] }));
  await it.add(1);
  await it.began(1);
  const client = await it.worker.pool.connect();
  await client.query("begin");
  for (let n = 2; n <= 10; n++)
    await client.query("select dispatch_policy.add_job('work', $1, job_key => 'k')", [{ key: "a", n }]);
  t.is(it.runs[0]!.signal.aborted, false, "nobody sees an open transaction");
  await client.query("commit");
  client.release();
  await it.began(2);
  t.deepEqual(it.all(), [
    [1, "cancelled"],
    [10, undefined],
  ]);
  const { reason } = it.runs[0]!.signal as { reason: CancelledError };
  t.is(reason.code, "cancelled");
  t.regex(reason.by, /^job \d+$/);
  t.is(reason.reason, "a newer job of its key was added");
  it.runs[1]!.end();
  await it.worker.everythingIsReleased();
  t.deepEqual(await failed(it.worker), [[reason.message, true]]);
});

test("a run that ignores its signal goes on, the new job says what it waits for, and goes when it has ended", async (t) => {
  const it = await world(t, definePolicy("work", cancelling), { heeds: false });
  await it.add(1);
  await it.began(1);
  const newer = await it.add(2);
  await until("it is told", () => it.runs[0]!.signal.aborted);
  const explained = await it.worker.utils.explain({ id: newer.id });
  const older = await workerTable(it.worker.pool).one();
  t.like(explained, { state: "staged", reason: "older_run", acts: "nobody", waitsFor: String(older.id) });
  t.is(explained.sentence, `It waits for the end of job ${older.id}, which it has cancelled.`);
  t.is(explained.noEstimate, "nobody knows when the run ends for which it waits");
  t.like(await it.worker.utils.explain({ policy: "work", partition: "a" }), { reason: "older_run" });
  it.runs[0]!.end();
  await it.began(2);
  t.deepEqual(it.all(), [
    [1, "done"],
    [2, undefined],
  ]);
  it.runs[1]!.end();
  await it.worker.everythingIsReleased();
  t.deepEqual(await failed(it.worker), [], "it has succeeded beside the cancel");
});

test("a run that has begun goes on for minRun, and an operator's cancel does not wait", async (t) => {
  const whenRunning = { cancel: true, minRun: "1 day" } as const;
  const it = await world(t, definePolicy("work", { partitionBy: "key", whenRunning }));
  await it.add(1);
  await it.began(1);
  const newer = await it.add(2);
  await it.add(3, { jobKey: "other", whenRunning: "keep" });
  await it.began(2); // its start came after the notification of the cancel
  t.is((await it.worker.utils.explain({ id: newer.id })).reason, "older_run");
  t.false(it.runs[0]!.signal.aborted);
  const older = await it.worker.row(
    "select job_id from dispatch_policy.in_flight_jobs where cancelled_at is not null",
  );
  await it.worker.utils.cancel({ ids: [String(older.job_id)], by: "ana" });
  await it.began(3);
  t.deepEqual(it.all(), [
    [1, "cancelled"],
    [3, undefined],
    [2, undefined],
  ]);
});

test("after minRun the run is told to end", async (t) => {
  const whenRunning = { cancel: true, minRun: "50 milliseconds" } as const;
  const it = await world(t, definePolicy("work", { partitionBy: "key", whenRunning }));
  await it.add(1);
  await it.began(1);
  await it.add(2);
  await it.began(2);
  t.deepEqual(it.all(), [
    [1, "cancelled"],
    [2, undefined],
  ]);
});

test("a run that ends within minRun has ended as always, and the new job goes", async (t) => {
  const whenRunning = { cancel: true, minRun: "1 day" } as const;
  const it = await world(t, definePolicy("work", { partitionBy: "key", whenRunning }));
  await it.add(1);
  await it.began(1);
  await it.add(2);
  it.runs[0]!.end();
  await it.began(2);
  t.deepEqual(it.all(), [
    [1, "done"],
    [2, undefined],
  ]);
  it.runs[1]!.end();
  await it.worker.everythingIsReleased();
  t.deepEqual(await failed(it.worker), []);
});

test("a job that waits for a worker ends without running, and its slot is free at once", async (t) => {
  const policy = definePolicy("work", { ...cancelling, ahead: 5, gates: [concurrency({ max: 1 })] });
  const it = await world(t, policy, { worker: { concurrentJobs: 1 } });
  const busy = { key: "b", n: 0 } as never;
  await it.worker.utils.addJob(policy, busy);
  await it.began(1);
  await it.add(1);
  const admitted = async () =>
    (
      await it.worker.row(
        "select staged_id from dispatch_policy.in_flight_jobs where partition = 'a' and cancelled_at is null",
      )
    )?.staged_id;
  const first = await until("it is admitted", admitted);
  await it.add(2);
  await until("the newer one has its slot", async () => ![undefined, first].includes(await admitted()));
  it.runs[0]!.end();
  await it.began(2);
  t.deepEqual(it.all(), [
    [0, "done"],
    [2, undefined],
  ]);
});

test("a job of its own: it cancels where the policy keeps, and keeps where the policy cancels", async (t) => {
  const keeps = await world(t, definePolicy("work", { partitionBy: "key" }));
  await keeps.add(1);
  await keeps.began(1);
  await keeps.add(2);
  await keeps.began(2);
  t.deepEqual(keeps.all(), [
    [1, undefined],
    [2, undefined],
  ]);
  await keeps.add(3, { jobKey: "k2" });
  await keeps.began(3);
  await keeps.add(4, { jobKey: "k2", whenRunning: "cancel" });
  await keeps.began(4);
  t.deepEqual(keeps.all(), [
    [1, undefined],
    [2, undefined],
    [3, "cancelled"],
    [4, undefined],
  ]);
  const cancels = await world(t, definePolicy("work", cancelling));
  await cancels.add(1);
  await cancels.began(1);
  await cancels.add(2, { whenRunning: "keep" });
  await cancels.began(2);
  t.deepEqual(cancels.all(), [
    [1, undefined],
    [2, undefined],
  ]);
});

test("a job that comes past the policy cancels the run as well", async (t) => {
  const it = await world(t, definePolicy("work", cancelling));
  await it.add(1);
  await it.began(1);
  await it.worker.pool.query("select graphile_worker.add_job('work', $1, job_key => 'k')", [
    { key: "a", n: 2 },
  ]);
  await it.began(2);
  t.deepEqual(it.all(), [
    [1, "cancelled"],
    [2, undefined],
  ]);
  t.is(it.most(), 1);
});

test("beside unsafe_dedupe the policy's option has no effect", async (t) => {
  const it = await world(t, definePolicy("work", cancelling));
  await it.add(1);
  await it.began(1);
  await it.add(2, { jobKeyMode: "unsafe_dedupe" });
  t.is(
    await it.worker.row("select from dispatch_policy.in_flight_jobs where cancelled_at is not null"),
    undefined,
  );
});

test("a bad option of a job is refused with its key, its value and what is expected, and nothing is added", async (t) => {
  const it = await world(t, definePolicy("work", cancelling));
  const bad: [object, string | RegExp][] = [
    [
      { whenRunning: "stop" },
      /^a job: whenRunning must be "keep", "cancel" or \{ cancel: true, minRun: "10 seconds" \}, got "stop"/,
    ],
    [{ whenRunning: { cancel: true } }, /^a job: whenRunning: minRun is missing/],
    [
      { whenRunning: { cancel: false, minRun: "1 second" } },
      /^a job: whenRunning: cancel must be true, got false/,
    ],
    [{ whenRunning: { cancel: true, minRun: "30 days" } }, /24 days at most, got "30 days"/],
    [{ whenRunning: { cancel: true, minRun: "1 second", max: 1 } }, /unknown option.*max/],
    [
      { whenRunning: "cancel", jobKey: undefined },
      /^a job: jobKey is missing: whenRunning "cancel" is about older jobs/,
    ],
    [
      { whenRunning: "cancel", jobKeyMode: "unsafe_dedupe" },
      /^a job: jobKeyMode must not be "unsafe_dedupe" beside/,
    ],
  ];
  for (const [spec, message] of bad) {
    const error = await t.throwsAsync(async () => it.add(1, spec), undefined, JSON.stringify(spec));
    t.regex(error.message, message as RegExp);
  }
  const plain = await t.throwsAsync(async () =>
    it.worker.utils.addJob("other" as never, {} as never, { jobKey: "k", whenRunning: "cancel" }),
  );
  t.regex(plain.message, /whenRunning is "cancel", expected none: this process has no policy of the task/);
  t.is(it.runs.length, 0);
  t.is((await it.worker.row("select count(*)::int as n from dispatch_policy.staged_jobs")).n, 0);
});
