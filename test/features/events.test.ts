// Who listens is told of each change once, and who reads the log can trace a pass. A healthy run warns about nothing.
import { EventEmitter } from "node:events";
import test, { type ExecutionContext } from "ava";
import { Logger, runOnce, runTaskList, WorkerPreset } from "graphile-worker";
import {
  ArgumentError,
  addJobAdhoc,
  concurrency,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  policyEvents,
  RetryAfter,
  runTickLoop,
  wrapTaskList,
} from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { refusePayloads } from "../helpers/native.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { type Line, NO_HEARTBEAT, startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", { partitionBy: "account", gates: [concurrency({ max: 2, name: "cap" })] });
const other = definePolicy("other", { partitionBy: "account" });
const DENIED =
  /^Pass of policy "work", shard default: claimed 1 partition, admitted 2 jobs, denied 1 partition \(.+: 1\), in [\d.]+ ms$/;

type Said = readonly [name: string, event: Record<string, unknown>];

/** An emitter that keeps what it emits. */
function listener() {
  const said: Said[] = [];
  const events = new EventEmitter();
  const emit = events.emit.bind(events);
  events.emit = (name, ...args) => {
    if (String(name).startsWith("dispatchPolicy:")) said.push([String(name).slice(15), args[0]]);
    return emit(name, ...args);
  };
  return {
    events,
    said,
    of: (name: string) => said.filter(([one]) => one === name).map(([, event]) => event),
  };
}

function lines() {
  const log: Line[] = [];
  const logger = new Logger((scope) => (level, message, meta) => {
    log.push({ level, message, meta, scope: scope as Record<string, unknown> });
  });
  return { log, logger };
}

async function world(t: ExecutionContext) {
  const { pool, url } = await testDatabase(t);
  const { events, said, of } = listener();
  const { log, logger } = lines();
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work, other], logger, events });
  t.teardown(() => utils.release());
  /** What was said since the last call. */
  const news = () => said.splice(0);
  return { pool, url, utils, events, said, of, log, news };
}

test("utils tell of jobs that they stage, once for each policy and call", async (t) => {
  const { utils, news } = await world(t);
  await utils.addJob("work", { account: "a" });
  t.deepEqual(news(), [["stage", { policy: "work", partition: "a", count: 1 }]]);
  await utils.addJobs([
    { identifier: "work", payload: { account: "a" } },
    { identifier: "work", payload: { account: "b" } },
    { identifier: "other", payload: { account: "c" } },
    { identifier: "plain", payload: {} },
  ]);
  t.deepEqual(news(), [
    ["stage", { policy: "work", partition: null, count: 2 }],
    ["stage", { policy: "other", partition: "c", count: 1 }],
  ]);
  await utils.addJob("plain", {});
  t.deepEqual(news(), [], "it has no policy");
});

test("utils tell of each verb that changes something, as the audit does", async (t) => {
  const { pool, utils, news } = await world(t);
  const why = { reason: "incident 12", by: "ana" };
  const one = { matched: 1, changed: 1, ...why };
  const a = { policy: "work", partition: "a" };
  const { id } = await utils.addJob("work", { account: "a" });
  news();
  const later = new Date(Date.now() + 60_000);
  await utils.pause({ ...a, until: later, ...why });
  await utils.resume({ ...a, ...why });
  await utils.hold({ ...a, forMs: 1000, ...why });
  await utils.hold({ ...a, until: later, ...why });
  t.deepEqual(news(), [
    ["pause", { ...a, until: later, ...one }],
    ["resume", { ...a, ...one }],
    ["hold", { ...a, gate: null, key: null, until: null, forMs: 1000, ...one }],
    ["hold", { ...a, gate: null, key: null, until: later, forMs: null, ...one }],
  ]);
  const gate = { policy: "work", gate: "cap" };
  await utils.setLimit({ ...gate, key: "zoe", set: { max: 1 }, until: later, ...why });
  await utils.clearLimit({ ...gate, key: "zoe", ...why });
  const key = { ...gate, key: "zoe", matched: 0, changed: 0, ...why };
  t.like(news(), [
    ["limit", { ...key, set: { max: 1 }, from: null, until: later }],
    ["limit", { ...gate, key: "zoe", set: null, from: null, until: null, changed: 1, ...why }],
  ]);
  const context = { plan: "pro" };
  await utils.refreshContext({ ...a, context, ...why, dryRun: true });
  await utils.refreshContext({ ...a, context, ...why });
  t.deepEqual(news(), [["refreshContext", { ...a, where: null, context, ...one }]]);
  await utils.disable({ policy: "other", ...why });
  await utils.enable({ policy: "other", ...why });
  t.deepEqual(news(), [
    ["switch", { policy: "other", enabled: false, ...one }],
    ["switch", { policy: "other", enabled: true, ...one }],
  ]);
  await utils.admit({ ...a, count: 1, dryRun: true });
  await utils.admit({ ...a, count: 1 });
  await utils.releaseSlots({ jobId: id, ...why });
  t.deepEqual(news(), [
    ["admit", { policy: "work", shard: null, count: 1 }],
    ["releaseSlots", { jobId: id, ...one }],
  ]);
  const move = { ...a, toPartition: "b" };
  await utils.move({ ...move, dryRun: true });
  await utils.move({ ...move, ids: [id], ...why });
  t.deepEqual(news(), [["move", { ...move, toPolicy: null, ...one }]]);
  for await (const _ of utils.export({ ids: [id] }));
  t.deepEqual(news(), [], "an export changes nothing");
  await utils.remove({ ...a, dryRun: true });
  await utils.remove({ ids: [id], ...why });
  await utils.retry({ policy: "work" });
  await utils.cancel({ ...a, dryRun: true });
  await utils.cancel({ policy: "work", ...why });
  t.deepEqual(news(), [
    ["remove", { policy: null, partition: null, ...one }],
    ["retry", { policy: "work", partition: null, matched: 1, changed: 1, reason: null, by: null }],
    ["cancel", { policy: "work", partition: null, running: 0, ...one }],
  ]);
  await utils.pause({ all: true });
  t.like(news(), [["pause", { policy: null, partition: null, until: null, by: null, reason: null }]]);
  await pool.query('select dispatch_policy.resume(null, "all" => true)');
  t.deepEqual(news(), [], "a call in SQL tells nobody");
  await t.throwsAsync(utils.pause({ policy: "nobody" }));
  t.deepEqual(news(), [], "nor does one that failed");
});

test("utils tell of their passes and sweeps", async (t) => {
  const { utils, of, log } = await world(t);
  await utils.addJobs([1, 2, 3].map(() => ({ identifier: "work", payload: { account: "a" } })));
  await utils.tick({ policy: "work" });
  await utils.sweep();
  t.like(of("tick"), [{ policy: "work", shard: null, claimed: 1, admitted: 2 }]);
  t.is(of("sweep").length, 1);
  const passes = log.filter(({ message }) => message.startsWith("Pass of "));
  t.is(passes.length, 1);
  t.regex(
    passes[0]!.message,
    /^Pass of policy "work", every shard: claimed 1 partition, admitted 2 jobs, denied 1 partition/,
  );
  t.like(passes[0], {
    level: "debug",
    scope: { label: "dispatch-policy" },
    meta: { policy: "work", admitted: 2 },
  });
});

test("a listener that throws stops nothing: the error is a line in the log, and the job is staged", async (t) => {
  const { pool, utils, events, log } = await world(t);
  policyEvents(events).on("dispatchPolicy:stage", () => {
    throw new Error("no metrics");
  });
  t.true((await utils.addJob("work", { account: "a" })).staged);
  const { rows } = await pool.query("select from dispatch_policy.staged_jobs");
  t.is(rows.length, 1);
  t.deepEqual(
    log.filter(({ level }) => level === "error").map(({ message, scope }) => [message, scope.label]),
    [
      [
        "A listener of dispatchPolicy:stage threw an error, which changes nothing here: no metrics",
        "dispatch-policy",
      ],
    ],
  );
});

test("a worker whose every listener throws admits and releases all jobs, and each error is a line in the log", async (t) => {
  const worker = await startWorker(t, {
    policies: [work],
    preset: NO_HEARTBEAT,
    tasks: { work: async () => {} },
  });
  const events = policyEvents(worker.runner.events);
  let told = 0;
  for (const name of ["tick", "admit", "deny", "release"] as const)
    events.on(`dispatchPolicy:${name}`, () => {
      told++;
      throw new Error("no metrics");
    });
  const jobs = Array.from({ length: 30 }, () => ({ identifier: "work", payload: { account: "a" } }));
  await worker.utils.addJobs(jobs);
  await worker.sees("job:success", jobs.length);
  await worker.everythingIsReleased();
  await worker.stop();
  t.true(told > 30, `${told} events`);
  const wrong = worker.log.filter(({ level }) => level === "warning" || level === "error");
  t.is(wrong.length, told);
  t.true(wrong.every(({ message }) => message.startsWith("A listener of dispatchPolicy:")));
});

const serial = definePolicy("work", { partitionBy: "account", gates: [concurrency({ max: 1 })] });

test("runs and utils share an emitter, each with its own options", async (t) => {
  const { url, pool } = await testDatabase(t);
  const { events, of } = listener();
  const preset: GraphileConfig.Preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [serial] })],
    worker: { events: events as never, logger: silent },
  };
  const utils = await makePolicyUtils({ preset, pgPool: pool });
  t.teardown(() => utils.release());
  for (const round of [1, 2, 3]) {
    const ran: unknown[] = [];
    for (let n = 0; n < 4; n++) await utils.addJob("work", { account: "a", round });
    const own = quietPool(url); // the pools of earlier rounds have ended
    await runOnce({
      preset,
      pgPool: own,
      taskList: { work: async (payload) => void ran.push((payload as { round: number }).round) },
    });
    await own.end();
    t.deepEqual(ran, [round, round, round, round], "it ticked before each fetch");
  }
  t.is(of("stage").length, 12);
  t.is(
    of("admit").reduce((sum, { count }) => sum + (count as number), 0),
    12,
    "each is told once",
  );
});

test("utils leave at most one listener an event on an emitter, however many there were", async (t) => {
  const { pool } = await testDatabase(t);
  const { events, of } = listener();
  for (let n = 0; n < 15; n++)
    await addJobAdhoc(
      { pgPool: pool, events, logger: silent, preset: dispatchPolicyPreset({ policies: [work] }) },
      "work",
      { account: "a" },
    );
  t.is(of("stage").length, 15);
  t.true(events.eventNames().every((name) => events.listenerCount(name) === 1));
});

test("what cannot emit is refused", async (t) => {
  const { pool } = await testDatabase(t);
  const refused = await t.throwsAsync(makePolicyUtils({ pgPool: pool, events: "events" as never }), {
    instanceOf: ArgumentError,
  });
  t.is(refused.message, 'makePolicyUtils: events must be an EventEmitter, got "events"');
  t.throws(() => wrapTaskList({}, { policies: [work], events: {} as never }), {
    instanceOf: ArgumentError,
    message: "wrapTaskList: events must be an EventEmitter, got an object",
  });
});

test("utils find the emitter in their preset", async (t) => {
  const { pool } = await testDatabase(t);
  const { events, said } = listener();
  const preset = { worker: { events: events as never } };
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent, preset });
  t.teardown(() => utils.release());
  await utils.addJob("work", { account: "a" });
  t.is(said.length, 1);
});

test("runTickLoop tells of its passes", async (t) => {
  const { pool, utils } = await world(t);
  const { events, of } = listener();
  const { log, logger } = lines();
  const ends = new AbortController();
  const loop = runTickLoop({ pgPool: pool, policies: [work], logger, events, signal: ends.signal });
  await utils.addJob("work", { account: "a" });
  await until("the job is admitted", () => of("admit").length > 0);
  ends.abort();
  await loop;
  t.deepEqual(of("admit"), [{ policy: "work", shard: null, count: 1 }]);
  t.true(
    log.some(
      ({ level, scope, message }) =>
        level === "debug" && scope.label === "dispatch-policy" && message.startsWith("Pass of "),
    ),
  );
});

test("wrapTaskList tells of holds, stagings, passes and releases", async (t) => {
  const { url, pool, utils } = await world(t);
  const { events, of } = listener();
  const { log, logger } = lines();
  const tasks = wrapTaskList(
    {
      work: async (_payload, helpers) => {
        await helpers.addJob("other", { account: "b" });
        throw new RetryAfter("1 hour", { reason: "429" });
      },
    },
    { policies: [work, other], events },
  );
  const own = quietPool(url);
  const workers = runTaskList({ noHandleSignals: true, logger, pollInterval: 50 }, tasks, own);
  t.teardown(async () => {
    await workers.gracefulShutdown();
    await own.end();
  });
  await utils.addJob("work", { account: "a" });
  await pool.query("select graphile_worker.add_job('dispatch_policy_tick')");
  await until("the job's slot is released", () => of("release").length > 0);
  const [admitted] = of("admit");
  t.deepEqual(admitted, { policy: "work", shard: null, count: 1 });
  t.like(of("hold"), [
    { policy: "work", partition: "a", until: null, forMs: 3_600_000, reason: "429", changed: 1 },
  ]);
  t.regex(String(of("hold")[0]!.by), /^job \d+$/);
  t.deepEqual(of("stage"), [{ policy: "other", partition: "b", count: 1 }]);
  const line = (start: string) => log.find(({ message }) => message.startsWith(start));
  t.like(line("Pass of "), { level: "debug", scope: { label: "dispatch-policy" } });
  const released = { label: "dispatch-policy", jobId: undefined };
  t.like(line("Released 1 finished job in "), { level: "debug", scope: released }, "it is of no single job");
});

test("a worker tells of a RetryAfter and of jobs that its tasks stage, each once, on its own emitter", async (t) => {
  const worker = await startWorker(t, {
    policies: [work, other],
    preset: NO_HEARTBEAT,
    tasks: {
      work: async (_payload, helpers) => {
        await helpers.addJob("other", { account: "b" });
        throw new RetryAfter("1 hour");
      },
      other: async () => {},
    },
  });
  const said: unknown[] = [];
  const events = policyEvents(worker.runner.events);
  events.on("dispatchPolicy:hold", (event) =>
    said.push(["hold", event.partition, event.forMs, event.reason]),
  );
  events.on("dispatchPolicy:stage", (event) => said.push(["stage", event]));
  await worker.utils.addJob("work", { account: "a" });
  await worker.sees("job:success");
  await worker.everythingIsReleased();
  t.deepEqual(said, [
    ["stage", { policy: "other", partition: "b", count: 1 }],
    ["hold", "a", 3_600_000, null],
  ]);
});

test("a few hundred healthy jobs: no warning, and each pass and flush of work is a debug line of this package", async (t) => {
  const worker = await startWorker(t, {
    policies: [work, other],
    tasks: { work: async () => {}, other: async () => {} },
  });
  let ticks = 0;
  policyEvents(worker.runner.events).on("dispatchPolicy:tick", () => void ticks++);
  const jobs = Array.from({ length: 300 }, (_, n) => ({
    identifier: n % 3 === 0 ? "other" : "work",
    payload: { account: `a${n % 20}` },
  }));
  await worker.utils.addJobs(jobs);
  await worker.sees("job:success", jobs.length);
  await worker.everythingIsReleased();
  await worker.stop();
  t.deepEqual(
    worker.log.filter(({ level }) => level === "warning" || level === "error").map(({ message }) => message),
    [],
  );
  const debug = worker.log.filter(
    ({ level, scope }) => level === "debug" && scope.label === "dispatch-policy",
  );
  t.is(debug.filter(({ message }) => message.startsWith("Pass of ")).length, ticks);
  const released = debug.filter(({ message }) =>
    /^Released \d+ finished jobs? in [\d.]+ ms, left \d+ for/.test(message),
  );
  t.is(
    released.reduce((sum, { meta }) => sum + (meta as { jobs: number }).jobs, 0),
    jobs.length,
  );
});

test("the debug line of a pass names who was denied, and why", async (t) => {
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const worker = await startWorker(t, { policies: [work], tasks: { work: () => ended } });
  t.teardown(end);
  await worker.utils.addJobs([1, 2, 3].map(() => ({ identifier: "work", payload: { account: "a" } })));
  const line = await until("the pass is logged", () =>
    worker.log.find(({ message }) => message.startsWith("Pass of ")),
  );
  t.regex(line.message, DENIED);
  end();
  await worker.sees("job:success", 3);
});

test("what the sweep of the crontab's tick repairs is a warning that says what to do", async (t) => {
  const worker = await startWorker(t, {
    policies: [work],
    preset: NO_HEARTBEAT,
    tasks: { work: async () => {} },
  });
  await worker.utils.addJob("work", { account: "a" });
  await worker.sees("job:success");
  await worker.everythingIsReleased();
  await table(worker.pool, "limiters").set({ in_flight: 1 }, { gate: "cap" });
  await worker.pool.query("select graphile_worker.add_job('dispatch_policy_tick')");
  const line = await until("it warns", () => worker.log.find(({ level }) => level === "warning"));
  t.is(
    line.message,
    "A sweep repaired what a crash or a wrong clock left: 1 wrong counter. " +
      "Nothing is to be done. If it comes again and again, the command doctor says what is wrong",
  );
  t.is(line.scope.label, "dispatch-policy");
});

test("jobs that Graphile Worker refuses are quarantined with one warning, which says where the cause is", async (t) => {
  const { pool, utils, of, log } = await world(t);
  await refusePayloads(pool, "indigestible");
  await utils.addJob("work", { account: "indigestible" });
  await utils.addJob("work", { account: "a" });
  await utils.tick({ policy: "work" });
  t.deepEqual(of("quarantine"), [{ policy: "work", count: 1 }]);
  t.deepEqual(
    log.filter(({ level }) => level === "warning").map(({ message, scope }) => [message, scope.label]),
    [
      [
        'Policy "work" quarantined 1 job, because Graphile Worker refused. ' +
          "They are tried again later. Correct or remove them: staged_jobs.error says what is wrong with each",
        "dispatch-policy",
      ],
    ],
  );
});

test("a job that its policy rejects is quarantined with one warning for each policy", async (t) => {
  const strict = definePolicy("work", { partitionBy: "account", unmanaged: "reject" });
  const worker = await startWorker(t, {
    policies: [strict],
    preset: NO_HEARTBEAT,
    tasks: { work: async () => {} },
  });
  for (const account of ["a", "b"])
    await worker.pool.query(
      "select graphile_worker.add_job('work', json_build_object('account', $1::text))",
      [account],
    );
  await worker.sees("job:success", 2);
  const warned = worker.log.filter(({ level }) => level === "warning").map(({ message }) => message);
  t.is(warned.length, 1);
  t.regex(warned[0]!, /was added past policy "work"\. It is quarantined .* rescheduleJobs, or remove them/);
});
