// The doctor on worker pools: tasks and policies that nobody has, workers without the preset, silent ones.
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { run, type TaskList, WorkerPreset } from "graphile-worker";
import { makeEngine } from "../../../src/db/engine.ts";
import { definePolicy, dispatchPolicyPreset } from "../../../src/index.ts";
import { patient } from "../../helpers/doctor.ts";
import { greet } from "../../helpers/policies.ts";
import { silent } from "../../helpers/silent.ts";
import { table } from "../../helpers/table.ts";
import { until } from "../../helpers/until.ts";
import { isChecked, NO_HEARTBEAT, startWorker } from "../../helpers/worker.ts";

const other = definePolicy("other", { partitionBy: "name" });
const engine = makeEngine("dispatch_policy");

test("a task that no live worker has is found once jobs wait for it", async (t) => {
  const it = await patient(t, [greet, other]);
  const idle = { database: it, policies: [greet, other] };
  await startWorker(t, { ...idle, tasks: { other: () => {} } });
  t.deepEqual(await it.findings("no-worker"), []);
  await it.utils.addJob("greet", { name: "Ana" } as never);
  await it.utils.addJob("other", { name: "Ana" } as never);
  const found = await until("it is found", async () => {
    const all = await it.findings("no-worker");
    return all.length === 1 ? all : null; // the other policy's job may still be on its way
  });
  t.like(found, [{ severity: "critical", mend: /register the task/.source && found[0]!.mend }]);
  t.regex(
    found[0]!.sentence,
    /^No live worker has the task "greet" of policy "greet", for which jobs wait \(\d in flight\)/,
  );
  await startWorker(t, { ...idle, tasks: { greet: () => {} } });
  await until("it is mended", async () => (await it.findings("no-worker")).length === 0);
});

test("without any worker, each policy for which jobs wait is found", async (t) => {
  const it = await patient(t, [greet, other]);
  await it.utils.addJob("greet", { name: "Ana" } as never);
  t.like(await it.findings("no-worker"), [{ severity: "critical" }]);
  t.deepEqual(await it.findings("orphaned"), []);
});

test("a policy that was removed from the code is found while jobs wait for it", async (t) => {
  const it = await patient(t, [greet, other]);
  const worker = await startWorker(t, {
    database: it,
    policies: [other],
    tasks: { greet: () => {}, other: () => {} },
  });
  t.deepEqual(await it.findings("orphaned"), []);
  await it.utils.addJob("greet", { name: "Ana" } as never);
  // a worker listens before it is known to be alive
  const found = await until("it is found", async () => (await it.findings("orphaned"))[0]);
  t.like(found, { severity: "critical" });
  t.is(found.sentence, 'Jobs wait for policy "greet", which no live worker has (0 in flight).');
  t.regex(found.mend, /remove-policy --policy greet --into NAME/);
  t.deepEqual(await it.findings("no-worker"), []);
  await worker.stop();
  await startWorker(t, { database: it, policies: [greet], tasks: { greet: () => {} } });
  await until("it is mended", async () => (await it.findings("orphaned")).length === 0);
});

test("a policy that nobody declared is found", async (t) => {
  const it = await patient(t, [other]);
  const { addPolicyJob } = await import("../../../src/index.ts");
  await addPolicyJob(it.pool, greet, { name: "Ana" } as never);
  const [found] = await it.findings("orphaned");
  t.is(found?.sentence, 'Jobs wait for policy "greet", which nobody declared (1 staged).');
  t.regex(found?.mend ?? "", /# removed: \S*.*unstage --policy greet/);
  t.notRegex(found?.mend ?? "", /switch it off/);
  const [{ id }] = (await it.pool.query("select id from dispatch_policy.staged_jobs")).rows;
  await it.utils.remove({ ids: [id] });
  t.deepEqual(await it.findings("orphaned"), [], "no job waits for it any more");
});

test("workers without the preset that end governed jobs are found", async (t) => {
  const it = await patient(t);
  // said of jobs that were seen there while they ran
  const tasks: TaskList = { greet: () => delay(3000) };
  const plain = await run({
    pgPool: it.pool,
    taskList: tasks,
    noHandleSignals: true,
    logger: silent,
    concurrency: 2,
    pollInterval: 50,
  });
  t.teardown(() => plain.stop());
  // it leads, and runs no job of the task
  await startWorker(t, { database: it, policies: [greet], tasks: { none: () => {} } });
  await it.utils.addJobs([1, 2, 3, 4].map((n) => ({ identifier: "greet", payload: { name: `n${n % 2}` } })));
  const found = await until("it is found", async () => {
    const all = await it.findings("no-preset");
    return all.length > 0 ? all : null;
  });
  t.regex(
    found[0]!.sentence,
    /^Workers without the preset run jobs of policy "greet": \d ended there, the last \d+ s ago\.$/,
  );
  await table(it.pool, "policies").set({ ended_elsewhere_at: (its) => `${its} - interval '2 hours'` });
  t.deepEqual(await it.findings("no-preset"), []);
});

test("a worker that was killed is found until a sweep has unlocked its jobs", async (t) => {
  const it = await patient(t);
  const bid = { policies: [], shards: null, ttlMs: 1000, bids: false };
  const dead = {
    id: "dead",
    slots: 1,
    tasks: ["greet"],
    host: "host1",
    pid: 42,
    staleAfterMs: 1,
    clockBehindMs: 0,
    saidOn: null,
  };
  await it.utils.withPgClient((client) => engine.beat(client, dead, bid));
  const [found] = await until("it is silent", async () => {
    const all = await it.findings("silent-worker");
    return all.length > 0 ? all : null;
  });
  t.regex(found!.sentence, /^The worker of process 42 on host1 has been silent for \d+ s/);
  await table(it.pool, "workers").set({ buried_at: () => "clock_timestamp()" });
  t.deepEqual(await it.findings("silent-worker"), []);
});

test("two live definitions of one version are found, and a higher version mends it", async (t) => {
  const it = await patient(t, []);
  const tasks = { greet: () => {} };
  const changed = (version: number) =>
    definePolicy("greet", {
      partitionBy: "name",
      version,
      gates: ({ concurrency }) => [concurrency({ max: 2 })],
    });
  await startWorker(t, { database: it, policies: [greet], tasks });
  const second = await startWorker(t, { database: it, policies: [changed(0)], tasks });
  const found = await until("it is found", async () => {
    const all = await it.findings("two-definitions");
    return all.length > 0 ? all : null;
  });
  t.is(found[0]!.sentence, 'Live workers have 2 definitions of policy "greet" with version 0.');
  t.regex(found[0]!.mend, /version: 1/);
  await second.stop();
  await startWorker(t, { database: it, policies: [changed(1)], tasks });
  await until("it is mended", async () => (await it.findings("two-definitions")).length === 0);
});

const capped = (version: number, max: number) =>
  definePolicy("greet", { version, partitionBy: "name", gates: ({ concurrency }) => [concurrency({ max })] });

test("a deployment that was rolled back is found, with why the older definition is in force", async (t) => {
  const it = await patient(t, []);
  const start = (version: number) =>
    startWorker(t, { database: it, policies: [capped(version, 5)], tasks: { greet: () => {} } });
  const newer = await start(2);
  t.deepEqual(await it.findings("older-definition"), []);
  const rolledBack = await start(1);
  await until("it says which is in force", () =>
    rolledBack.log.some(
      ({ level, message }) =>
        level === "info" &&
        message.includes('version 1 of policy "greet", and version 2 is in force, which another worker has'),
    ),
  );
  t.deepEqual(await it.findings("older-definition"), [], "a worker has the one in force");
  await newer.stop();
  t.like(await it.findings("older-definition"), [
    {
      severity: "info",
      sentence:
        'Jobs of policy "greet" go by version 1, the newest that a live worker has. ' +
        `Version 2 was declared by process ${process.pid} on ${os.hostname()}, and no live worker has it.`,
      mend: "# rolled back: nothing\n# rolled out: start a worker that has version 2",
    },
  ]);
  await start(3);
  await until("it is mended", async () => (await it.findings("older-definition")).length === 0);
});

test("a definition in force that no live worker has is found until a sweep replaces it", async (t) => {
  const it = await patient(t, []);
  const start = async (version: number) => {
    const worker = await startWorker(t, {
      ...{ database: it, policies: [capped(version, 5)], tasks: { greet: () => {} } },
      preset: NO_HEARTBEAT,
    });
    await isChecked(worker.log);
    return worker;
  };
  await start(1);
  await (await start(2)).stop(); // its row stays, and nobody but this test writes it
  const second = { definitions: (its: string) => `${its} #>> '{greet,version}' = '2'` };
  const now = () => "clock_timestamp()";
  const anHour = () => `${now()} + interval '1 hour'`;
  const workers = table(it.pool, "workers");
  await workers.set({ slots: 4, ended: false, buried_at: null, stale_at: anHour }, second);
  await it.utils.sweep();
  t.deepEqual(await it.findings("older-definition"), []);
  await workers.set({ stale_at: now, buried_at: now }, second); // killed, and found dead
  t.like(await it.findings("older-definition"), [
    { severity: "warning", sentence: 'Jobs of policy "greet" go by version 2, which no live worker has.' },
  ]);
  await it.utils.sweep();
  t.like(await it.findings("older-definition"), [{ severity: "info" }]);
});

test("a policy that was removed from the code is found while its gates are full", async (t) => {
  const it = await patient(t, [greet, other]);
  await startWorker(t, { database: it, policies: [other], tasks: { other: () => {} } });
  await it.utils.addJobs([1, 2].map(() => ({ identifier: "greet", payload: { name: "Ana" } as never })));
  await it.utils.tick({ policy: "greet" }); // anybody's crontab task may do that
  const found = async () =>
    (await it.findings("orphaned")).map(({ severity, sentence }) => [severity, sentence]);
  t.deepEqual(await found(), [
    ["critical", 'Jobs wait for policy "greet", which no live worker has (1 in flight).'],
  ]);
});

test("a policy that was removed from the code is found while its partition is paused", async (t) => {
  const it = await patient(t, [greet, other]);
  await startWorker(t, { database: it, policies: [other], tasks: { other: () => {} } });
  await it.utils.pause({ policy: "greet", partition: "Ana" });
  await it.utils.addJob("greet", { name: "Ana" } as never);
  await it.utils.tick({ policy: "greet" });
  t.like(await it.findings("orphaned"), [{ severity: "critical" }]);
});

test("admitted jobs that no worker fetches, though it has room, are found", async (t) => {
  const it = await patient(t);
  // as workers do not fetch a job either if its task has got another id, for a while
  const worker = await run({
    preset: {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies: [greet] })],
      worker: { logger: silent },
    },
    ...{ pgPool: it.pool, noHandleSignals: true, forbiddenFlags: ["refused"] },
    taskList: { greet: async () => {} },
  });
  t.teardown(() => worker.stop().catch(() => {}));
  await it.utils.addJob(greet, { name: "Ana" }, { flags: ["refused"] });
  await until("it is admitted", async () => {
    return (await it.pool.query("select from dispatch_policy.in_flight_jobs")).rows.length === 1;
  });
  t.deepEqual(await it.findings("not-fetched"), [], "it has just come");
  const found = await until(
    "the worker is known to be alive",
    async () => (await it.findings("not-fetched", { unfetchedMs: 0 }))[0],
  );
  t.is(found.severity, "critical");
  t.regex(
    found.sentence,
    /^No worker fetches 1 admitted job of task "greet" of policy "greet", the first for \d+ s, though workers/,
  );
  await worker.stop();
  t.deepEqual(
    await it.findings("not-fetched", { unfetchedMs: 0 }),
    [],
    "without a worker it is another finding",
  );
});
