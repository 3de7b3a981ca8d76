// Tick loops that lead different shards of a policy, whose partitions share limiters.
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import type { Job, WithPgClient } from "graphile-worker";
import type pg from "pg";
import { makeEngine } from "../../src/db/engine.ts";
import { noEvents } from "../../src/events.ts";
import { definePolicy, makePolicyUtils, policyEvents } from "../../src/index.ts";
import { makeWorkerPool } from "../../src/pool/worker-pool.ts";
import { makeRunningJobs } from "../../src/run/running-jobs.ts";
import { readSettings } from "../../src/settings.ts";
import * as shardedCap from "../fixtures/sharded-cap/policy.ts";
import { testDatabase } from "../helpers/database.ts";
import { concurrency, engine } from "../helpers/engine.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

type Payload = { k: string; shard: string };
const context = (payload: unknown) => payload as Payload;
const sharded = { context, partitionBy: (ctx: Payload) => ctx.k, shardBy: (ctx: Payload) => ctx.shard };

const onePerPartition = definePolicy("p", {
  ...sharded,
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});
const twoInAll = definePolicy("p", {
  ...sharded,
  gates: ({ concurrency }) => [concurrency({ scope: "policy", max: 2 })],
});
const noGates = definePolicy("p", { ...sharded, gates: () => [] });

/** Who began and ceased to lead, from now on. */
function leaderEvents({ runner }: TestWorker): { shard: string; leads: boolean }[] {
  const told: { shard: string; leads: boolean }[] = [];
  policyEvents(runner.events).on(
    "dispatchPolicy:leader",
    ({ shard, leads }) => void told.push({ shard, leads }),
  );
  return told;
}

function isStarted({ log }: TestWorker): Promise<unknown> {
  return until("it is started", () => log.some(({ message }) => message.includes("this worker leads")));
}

const jobsOf = (shard: string, count: number, partitions = 1) =>
  Array.from({ length: count }, (_, n) => {
    return { identifier: "p", payload: { k: `${shard}${n % partitions}`, shard } };
  });

for (const [what, loop, led] of [
  ["for the shards it names", { shards: ["s1"] }, []],
  ["for all shards", true, [{ shard: "s1", leads: true }]],
] as const) {
  test(`a loop ${what} goes on leading one whose partitions are full`, async (t) => {
    let runs = 0;
    const worker = await startWorker(t, {
      policies: [onePerPartition],
      preset: { loop, loopHeartbeat: "50 ms" },
      tasks: {
        p: async () => {
          await delay(200); // some heartbeats
          runs++;
        },
      },
    });
    await isStarted(worker);
    const told = leaderEvents(worker);
    await worker.utils.addJobs(jobsOf("s1", 10));
    await until("all ran", () => runs === 10, { seen: () => ({ runs, told }) });
    t.deepEqual(told, led as never);
  });
}

test("the leader of a shard that it names sweeps while the shard's partitions are full", async (t) => {
  const open = Promise.withResolvers<void>();
  const worker = await startWorker(t, {
    policies: [onePerPartition],
    preset: { loop: { shards: ["s1"] }, loopHeartbeat: "50 ms", sweepInterval: "100 ms" },
    tasks: { p: () => open.promise },
  });
  t.teardown(open.resolve); // else the worker would wait for the job, and nobody would learn what failed
  await worker.utils.addJobs(jobsOf("s1", 2));
  await worker.sees("job:start");
  await until("the other one waits", () =>
    worker.row("select from dispatch_policy.partitions where blocked_on is not null"),
  );
  let swept = 0;
  policyEvents(worker.runner.events).on("dispatchPolicy:sweep", () => void swept++);
  await until("it has swept", () => swept > 2);
  open.resolve();
  await worker.sees("job:success", 2);
  t.pass();
});

test("two loops that lead a shard each share the room of the whole policy", async (t) => {
  const database = await testDatabase(t);
  let now = 0;
  let most = 0;
  const runs = { eu: 0, us: 0 };
  const start = (shard: "eu" | "us") =>
    startWorker(t, {
      database,
      policies: [twoInAll],
      preset: { loop: { shards: [shard] } },
      tasks: {
        p: async (payload) => {
          now++;
          most = Math.max(most, now);
          runs[(payload as Payload).shard as "eu" | "us"]++;
          await delay(5);
          now--;
        },
      },
    });
  const eu = await start("eu");
  const us = await start("us");
  await Promise.all([isStarted(eu), isStarted(us)]);
  const told = [leaderEvents(eu), leaderEvents(us)];
  await eu.utils.addJobs([...jobsOf("eu", 60, 10), ...jobsOf("us", 60, 10)]);
  await until("all ran", () => runs.eu + runs.us === 120, { seen: () => runs });
  t.is(most, 2);
  t.deepEqual(told, [[], []]);
});

for (const [what, policy] of [
  ["a cap over the whole policy", twoInAll],
  ["no gate", noGates],
] as const) {
  test(`where a shard has no loop, the other one's jobs go on under ${what}`, async (t) => {
    const runs: Record<string, number> = { eu: 0, us: 0 };
    const worker = await startWorker(t, {
      policies: [policy],
      preset: { loop: { shards: ["eu"] }, defaults: { ahead: 0 } },
      tasks: { p: async (payload) => void runs[(payload as Payload).shard]!++ },
    });
    await worker.utils.addJobs(jobsOf("us", 40, 40));
    // those of us wait for what is shared, as they would after their leader has died
    await worker.utils.tick({ policy: "p", shard: "us" });
    await worker.utils.addJobs(jobsOf("eu", 200, 20));
    await until("all of eu ran", () => runs.eu === 200, { seen: () => runs });
    t.pass();
  });
}

test("the loops of one process share the room of the whole policy, and stay", async (t) => {
  const turns: string[] = [];
  const oneInAll = definePolicy("p", {
    ...sharded,
    gates: ({ concurrency }) => [concurrency({ scope: "policy", max: 1 })],
  });
  const worker = await startWorker(t, {
    policies: [oneInAll],
    tasks: { p: async (payload) => void turns.push((payload as Payload).shard) },
  });
  const told = leaderEvents(worker);
  const shards = ["a", "b", "c", "d"];
  await worker.utils.addJobs(shards.flatMap((shard) => jobsOf(shard, 15, 3)));
  await until("all ran", () => turns.length === 60, { seen: () => turns });
  t.deepEqual(
    told.filter(({ leads }) => !leads),
    [],
  );
});

/** A worker process: which jobs it runs now, and who leads what. */
async function startProcess(
  t: ExecutionContext,
  url: string,
  counts: (news: shardedCap.News) => Promise<void>,
  named: readonly string[],
) {
  const file = fileURLToPath(new URL("../fixtures/sharded-cap/worker.ts", import.meta.url));
  const child = fork(file, [url, ...named], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
  const gone = once(child, "exit");
  const running = new Set<number>();
  const leads: Record<string, boolean[]> = {};
  let isReady = false;
  child.on("message", (news: shardedCap.News) => {
    if (news === "ready") {
      isReady = true;
      return;
    }
    if ("shard" in news) {
      leads[news.shard] = [...(leads[news.shard] ?? []), news.leads];
      return;
    }
    if ("started" in news) running.add(news.started);
    else running.delete(news.ended);
    void counts(news).then(() => child.send("counted", () => {})); // it may be gone
  });
  const kill = async () => {
    child.kill("SIGKILL");
    await gone;
    running.clear();
  };
  t.teardown(kill);
  await until("it is ready", () => isReady);
  return { running, leads, kill };
}

const { SHARDS } = shardedCap;
for (const [what, named] of [
  ["four shards", []],
  ["two shards that both name", ["a", "b"]],
] as const) {
  test(`two worker processes share ${what} and one cap, and if one is killed the other finishes`, async (t) => {
    const { CAP, policy } = shardedCap;
    const shards = named.length > 0 ? named : SHARDS;
    const led = named.length > 0 ? [...named] : [...SHARDS, "default"];
    const { url, pool } = await testDatabase(t);
    const ended = new Set<number>();
    const workers: Awaited<ReturnType<typeof startProcess>>[] = [];
    let most = 0;
    const reached = Promise.withResolvers<void>();
    const counts = (news: shardedCap.News) => {
      most = Math.max(
        most,
        workers.reduce((sum, { running }) => sum + running.size, 0),
      );
      if (typeof news === "object" && "ended" in news) ended.add(news.ended);
      if (most >= CAP) reached.resolve();
      return reached.promise; // the first jobs last until so many run
    };
    for (let n = 0; n < 2; n++) workers.push(await startProcess(t, url, counts, named));
    const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
    t.teardown(() => utils.release());
    const addJobs = (from: number, count: number) =>
      utils.addJobs(
        Array.from({ length: count }, (_, i) => {
          return { identifier: "p", payload: { n: from + i, shard: shards[i % shards.length] } };
        }),
      );
    const leadership = () => workers.map(({ leads }) => leads);
    const seen = () => ({ ended: ended.size, most, leadership: leadership() });

    await addJobs(0, 400);
    await until("all ran", () => ended.size === 400, { seen });
    t.is(most, CAP);
    const turns = leadership().flatMap((leads) => Object.values(leads).flat());
    t.false(turns.includes(false), JSON.stringify(leadership()));
    t.deepEqual([...new Set(leadership().flatMap(Object.keys))].toSorted(), led);

    await addJobs(400, 400);
    await until("some of them ran", () => ended.size >= 450, { seen });
    const [killed, survivor] = Object.keys(workers[0]!.leads).length > 0 ? workers : workers.toReversed();
    await killed!.kill();
    await until("all of them ran", () => ended.size === 800, { seen });
    t.is(most, CAP);
    const all = led.join();
    // a shard without jobs may change hands after the last job
    await until("the other leads every shard", () => Object.keys(survivor!.leads).toSorted().join() === all, {
      seen,
    });
    t.false(Object.values(survivor!.leads).flat().includes(false));
  });
}

test("a worker pool passes on what its ticks say of single shards, to their loops alone, and nothing of its releases", async (t) => {
  const { pool } = await testDatabase(t);
  const real = makeEngine("dispatch_policy");
  const looked: (string | null)[] = [];
  let ticking = 0;
  let releasing = 0;
  const pidOf = (client: unknown) => (client as { processID: number }).processID;
  const runtime = makeWorkerPool({
    poolId: "pool",
    oneShot: false,
    slots: 1,
    tasks: ["p"],
    fetching: { stop: () => {}, resume: () => {} },
    hand: makeRunningJobs().inHand("pool"),
    runOf: () => undefined,
    disown: () => {},
    checkListening: () => {},
    clock: { behindMs: 0, atMostMs: 0 },
    withPgClient: withClientOf(pool),
    pgPool: pool,
    engine: {
      ...real,
      admit: (client, pass) => {
        ticking = pidOf(client);
        looked.push(pass.shard);
        return real.admit(client, pass);
      },
      release: (client, jobs) => {
        releasing = pidOf(client);
        return real.release(client, jobs);
      },
    },
    settings: readSettings({ policies: [noGates], loop: { shards: ["eu", "us"] } }),
    events: noEvents,
    logger: silent,
  });
  await runtime.start();
  t.teardown(async () => {
    await runtime.stepDown();
    await runtime.close();
  });
  await until("both loops have looked", () => looked.includes("eu") && looked.includes("us"));
  const ended = {
    ...{ policy: noGates, admission: "0", ownsSlot: true, stagedId: null, lagMs: null, startedAt: 0 },
    settlement: { settled: undefined },
    signal: { cancelled: undefined, stopped: false, abort() {} },
  };
  await runtime.release({ id: "1", attempts: 1, max_attempts: 25 } as Job, ended, null);
  // The beat that starts the loops nudges them as well, and a loop that is nudged may wait for a connection before it
  // looks. On a busy machine that took more than 100 ms.
  for (let seen = -1; seen !== looked.length; await delay(500)) seen = looked.length; // until they rest
  looked.length = 0;

  runtime.onNotification({ policy: "p" }, releasing); // it would have nudged all loops, had anybody waited
  runtime.onNotification({ policy: "p", shard: "us" }, ticking);
  await until("it has looked", () => looked.length > 0);
  runtime.onNotification({ policy: "other" }, releasing);
  runtime.onNotification({ policy: "p", shard: "eu" }, ticking);
  await until("the other one has looked", () => looked.length > 1);
  t.deepEqual(looked, ["us", "eu"]);
});

function withClientOf(pool: pg.Pool): WithPgClient {
  return async (callback) => {
    const client = await pool.connect();
    try {
      return await callback(client);
    } finally {
      client.release();
    }
  };
}

for (const [when, isRouted] of [
  ["at once with it", false],
  ["before it", true],
] as const) {
  test(`a hold that is routed ${when} leaves a partition its first job's shard`, async (t) => {
    const it = await engine(t, { gates: [concurrency(1)], shardOf: () => "s1" });
    await it.pool.query(`select from dispatch_policy.hold('p', 'a', "for" => '1 ms')`);
    if (isRouted) await it.route();
    await it.stage("a");
    await it.route();
    t.is((await it.partition("a")).shard, "s1");
    await it.stage("a", { shard: "s2" });
    await it.route();
    t.is((await it.partition("a")).shard, "s1");
  });
}
