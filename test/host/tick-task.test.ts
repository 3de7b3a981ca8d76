// The task that the crontab starts, alone and beside a loop.
import test from "ava";
import { concurrency, definePolicy, policyEvents } from "../../src/index.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker, type TestWorker } from "../helpers/worker.ts";

const TICK = "dispatch_policy_tick";
const work = definePolicy("work", {
  context: (payload) => payload as { shard?: string },
  partitionBy: (ctx) => ctx.shard ?? "",
  shardBy: (ctx) => ctx.shard ?? "default",
  gates: ({ concurrency }) => [concurrency({ max: 50 })],
});
const other = definePolicy("other", { partitionBy: "account" });
const one = definePolicy("one", { partitionBy: "account", gates: [concurrency({ max: 1 })] });
const tasks = { work: async () => {}, other: async () => {} };
const noLoop = { policies: [work, other], tasks, preset: { loop: false } } as const;

async function tick(worker: TestWorker, payload: object): Promise<void> {
  await worker.utils.addJob(TICK, payload);
}

async function stagedOf(worker: TestWorker): Promise<number> {
  return (await worker.row("select count(*)::int as n from dispatch_policy.staged_jobs")).n;
}

test("without a loop nothing goes until the task runs; then all that may go does, and it returns", async (t) => {
  const worker = await startWorker(t, noLoop);
  const jobs = Array.from({ length: 120 }, (_, n) => ({
    identifier: "work",
    payload: { shard: `s${n % 3}` },
  }));
  await worker.utils.addJobs(jobs);
  await worker.utils.addJob("other", { account: "a" });
  t.is(await stagedOf(worker), 121);
  const before = performance.now();
  await tick(worker, {});
  await worker.sees("job:success", 1 + 121);
  t.is(await stagedOf(worker), 0);
  t.true(performance.now() - before < 20_000, "it does not sit in a slot until the next minute");
});

test("past tickMaxDuration each policy has one more pass, and the next run admits the rest", async (t) => {
  const brief = { loop: false, tickMaxDuration: "1 ms", partitionBatchSize: 1 } as const;
  const worker = await startWorker(t, { ...noLoop, preset: brief });
  await worker.utils.addJobs(
    ["a", "b", "c"].map((account) => ({ identifier: "other", payload: { account } })),
  );
  await worker.utils.addJob("work", {});
  await tick(worker, {});
  await worker.sees("job:success", 1 + 2);
  t.is(await stagedOf(worker), 2, "one partition of each policy went");
  await tick(worker, {});
  await worker.sees("job:success", 2 + 3);
  t.is(await stagedOf(worker), 1);
});

test("payload: one policy, one shard", async (t) => {
  const worker = await startWorker(t, noLoop);
  await worker.utils.addJobs(["s1", "s2"].map((shard) => ({ identifier: "work", payload: { shard } })));
  await worker.utils.addJob("other", { account: "a" });
  await tick(worker, { policy: "work", shard: "s1", _cron: { ts: "2020-01-01T00:00:00Z" } });
  await worker.sees("job:success", 2);
  t.is(await stagedOf(worker), 2);
  await tick(worker, { policy: "other" });
  await worker.sees("job:success", 4);
  t.is(await stagedOf(worker), 1);
});

for (const [payload, message] of [
  [{ policy: 5 }, /policy must be a string/],
  [{ for: "a while" }, /for must be a duration/],
  [{ polici: "work" }, /unknown option "polici".*policy/],
  [{ policy: "nobody" }, /nobody/],
] as const) {
  test(`payload ${JSON.stringify(payload)} is refused`, async (t) => {
    const worker = await startWorker(t, noLoop);
    await tick(worker, payload);
    const [failed] = await worker.sees("job:error");
    t.regex(failed!.error ?? "", message);
  });
}

test("for: without a leader it goes on until then", async (t) => {
  const worker = await startWorker(t, noLoop);
  await tick(worker, { for: "2 seconds" });
  const [start] = await worker.sees("job:start");
  const [end] = await worker.sees("job:success");
  t.true(end!.at - start!.at >= 1900, `${end!.at - start!.at} ms`);
});

test("for: meanwhile it sees what comes", async (t) => {
  const worker = await startWorker(t, { ...noLoop, worker: { gracefulShutdownAbortTimeout: 100 } });
  await tick(worker, { for: "1 hour" });
  await worker.sees("job:start");
  for (let n = 1; n <= 2; n++) {
    await worker.utils.addJob("other", { account: "a" });
    const done = await until("the job ran", () => {
      const ended = worker.happened.filter(({ event }) => event === "job:success");
      return ended.length >= n ? ended : null;
    });
    t.is(done.length, n, "the task itself goes on");
  }
});

test("for: its pool leads meanwhile, so adds and releases wake it, and then it steps down", async (t) => {
  const worker = await startWorker(t, {
    ...{ policies: [one], tasks: { one: async () => {} } },
    preset: { ...NO_HEARTBEAT, loop: false },
    worker: { gracefulShutdownAbortTimeout: 100 },
  });
  const leads: boolean[] = [];
  policyEvents(worker.runner.events).on("dispatchPolicy:leader", (event) => leads.push(event.leads));
  await tick(worker, { for: "1 second" });
  await worker.sees("job:success");
  t.deepEqual(leads, [true, false]);
  await tick(worker, { for: "1 hour" });
  await until("it leads again at once, because no lease is left", () => leads.length === 3);
  await worker.utils.addJobs(
    Array.from({ length: 40 }, () => ({ identifier: "one", payload: { account: "a" } })),
  );
  await worker.sees("job:success", 1 + 40);
  t.deepEqual(leads, [true, false, true]);
});

test("for: beside a leader it returns at once", async (t) => {
  const worker = await startWorker(t, { ...noLoop, preset: {} });
  await until("it leads", () => worker.log.some(({ message }) => message.includes("this worker leads")));
  await tick(worker, { for: "1 hour" });
  await worker.sees("job:success");
  t.pass();
});

test("for: ends when the worker stops", async (t) => {
  const worker = await startWorker(t, { ...noLoop, worker: { gracefulShutdownAbortTimeout: 100 } });
  await tick(worker, { for: "1 hour" });
  await worker.sees("job:start");
  await worker.stop();
  t.is(worker.happened.at(-1)?.event, "job:success");
});

test("beside loops for some policies and shards, it keeps to the ahead bound there, and admits all of the others", async (t) => {
  const [one, two] = ["one", "two"].map((name) =>
    definePolicy(name, {
      context: (payload) => payload as { shard: string },
      partitionBy: "shard",
      shardBy: (ctx) => ctx.shard,
      ahead: 0,
    }),
  ) as [typeof work, typeof work];
  const over = Promise.withResolvers<void>();
  const endless = { one: () => over.promise, two: () => over.promise };
  const loop = { policies: ["one"], shards: ["eu"] };
  const led = await startWorker(t, {
    policies: [one, two],
    tasks: endless,
    preset: { loop },
    worker: { concurrentJobs: 2 },
  });
  const jobs = ["one", "two"].flatMap((identifier) =>
    ["eu", "us"].flatMap((shard) => Array.from({ length: 10 }, () => ({ identifier, payload: { shard } }))),
  );
  t.teardown(over.resolve);
  await led.utils.addJobs(jobs);
  await led.sees("job:start", 2);
  const ticking = await startWorker(t, {
    ...noLoop,
    database: led.database,
    policies: [one, two],
    tasks: {},
  });
  await tick(ticking, {});
  await ticking.sees("job:success");
  const { rows } = await led.pool.query(
    "select policy || ' ' || partition as of, count(*)::int as n from dispatch_policy.staged_jobs group by 1",
  );
  t.deepEqual(rows, [{ of: "one eu", n: 8 }]);
});

test("a user's own task of that name is kept, and warned about once", async (t) => {
  let ran = 0;
  const own = { ...tasks, [TICK]: async () => void ran++ };
  const worker = await startWorker(t, { ...noLoop, tasks: own });
  await tick(worker, {});
  await worker.sees("job:success");
  t.is(ran, 1);
  const warnings = worker.log.filter(({ message }) => message.includes(`task named ${TICK}`));
  t.deepEqual(
    warnings.map(({ level, scope }) => [level, scope.label]),
    [["warning", "dispatch-policy"]],
  );
});
