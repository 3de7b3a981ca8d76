// Which definition of a policy is in force: the newest that a live worker has. So a deployment that was rolled back goes by
// its own limits.
import test from "ava";
import { type AnyPolicy, concurrency, definePolicy, makePolicyUtils, throttle } from "../../src/index.ts";
import { policyDefinition } from "../../src/policy/policy.ts";
import { runCommand } from "../helpers/command.ts";
import { liveLeases } from "../helpers/leases.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { limitsByPartition } from "../helpers/limits.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { isChecked, NO_HEARTBEAT, type Place, startWorker } from "../helpers/worker.ts";

const tasks = { p: async () => {}, work: async () => {} };

/** Version 2 has another gate, and lacks one of version 1. */
const first = capped(1, 5);
const second = definePolicy("p", {
  version: 2,
  context: (payload: unknown) => payload as { k: string },
  partitionBy: (ctx) => ctx.k,
  gates: [concurrency({ name: "cap", max: 7 }), throttle({ rate: 9, per: "1 second" })],
});

function capped(version: number, max: number) {
  return definePolicy("p", {
    version,
    context: (payload: unknown) => payload as { k: string },
    partitionBy: (ctx) => ctx.k,
    gates: [concurrency({ max })],
  });
}

type Test = Parameters<typeof startWorker>[0];

/** A worker that has declared its policy, and sweeps only if a test does. */
async function start(t: Test, database: Place, policy: AnyPolicy, preset: object = {}) {
  const worker = await startWorker(t, {
    database,
    policies: [policy],
    tasks,
    preset: { ...NO_HEARTBEAT, ...preset },
  });
  await isChecked(worker.log);
  return worker;
}

/** A process that only adds jobs. */
async function app(t: Test, { pool }: Place, policy: AnyPolicy) {
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  return utils;
}

const statusOf = async ({ pool }: Place, name = "p") => {
  const utils = await makePolicyUtils({ pgPool: pool, policies: [], logger: silent });
  try {
    const { policies } = await utils.status();
    const { version, newestVersion, inForceBecause } = policies.find((one) => one.policy === name)!;
    return { version, newestVersion, inForceBecause };
  } finally {
    await utils.release();
  }
};

/** The limits that partition `a` has. */
const limits = async ({ pool }: Place): Promise<string[]> => (await limitsByPartition(pool)).a ?? [];

const has = (database: Place, ...expected: string[]) =>
  until(`limits are ${expected}`, async () => (await limits(database)).join() === expected.join());

test("the last worker of a newer version ends: the gates of the older one are back at once", async (t) => {
  const database = await lentDatabase(t);
  const old = await start(t, database, first);
  await old.utils.addJob("p", { k: "a" });
  await has(database, "concurrency 5");
  const other = await start(t, database, second);
  const newer = await start(t, database, second);
  await has(database, "cap 7", "throttle 9");
  t.deepEqual(await statusOf(database), { version: 2, newestVersion: 2, inForceBecause: "newest" });

  await other.stop();
  t.deepEqual(await statusOf(database), { version: 2, newestVersion: 2, inForceBecause: "newest" });
  await newer.stop();
  t.deepEqual(await statusOf(database), { version: 1, newestVersion: 2, inForceBecause: "workers" });
  await has(database, "concurrency 5");
  const said = 'Version 1 of policy "p" is in force now, because it is the newest that a live worker has';
  t.true(newer.log.some(({ level, message }) => level === "warning" && message.startsWith(said)));
  t.regex(
    (await runCommand(database.url, "status")).stderr.replace(/\s+/g, " "),
    /p: version 1 is in force, because it is the newest that a live worker has\. Version 2 was declared, and no live worker has it\./,
  );

  // jobs of a process that is not rolled back yet change no limit
  const producer = await app(t, database, second);
  await producer.addJob("p", { k: "a" });
  await producer.tick();
  t.deepEqual(await limits(database), ["concurrency 5"]);

  await start(t, database, second);
  await has(database, "cap 7", "throttle 9");
});

test("of one version, the definition of the worker that is left is in force", async (t) => {
  const database = await lentDatabase(t);
  const old = await start(t, database, capped(0, 5));
  await old.utils.addJob("p", { k: "a" });
  await has(database, "concurrency 5");
  const newer = await start(t, database, capped(0, 6));
  await has(database, "concurrency 6");
  await newer.stop();
  await has(database, "concurrency 5");
  t.deepEqual(await statusOf(database), { version: 0, newestVersion: 0, inForceBecause: "newest" });
});

test("a policy that was renamed has its task back, once no live worker has the new name", async (t) => {
  const named = (name: string) => definePolicy(name, { tasks: ["work"], partitionBy: "k" });
  const database = await lentDatabase(t);
  await start(t, database, named("old"));
  const newer = await start(t, database, named("new"));
  const goesTo = async () =>
    (await database.pool.query(`select policy from dispatch_policy.add_job('work', '{"k": "a"}')`)).rows[0]
      .policy;
  t.is(await goesTo(), "new");
  await newer.stop();
  t.is(await goesTo(), "old");
});

test("the settings of the preset come back with the definition", async (t) => {
  const database = await lentDatabase(t);
  const set = async () => {
    const { batch_size, enabled } = await table(database.pool, "policies").one();
    return { batch_size, enabled };
  };
  await start(t, database, first, { defaults: { admissionBatchSize: 11 } });
  const newer = await start(t, database, second, { defaults: { admissionBatchSize: 22 }, enabled: false });
  t.deepEqual(await set(), { batch_size: 22, enabled: false });
  await newer.stop();
  t.deepEqual(await set(), { batch_size: 11, enabled: true });
});

test("a worker that stops counts no more, although its last job still runs", async (t) => {
  const database = await lentDatabase(t);
  const old = await startWorker(t, { database, policies: [first], preset: NO_HEARTBEAT }); // without the task
  await isChecked(old.log);
  const ends = Promise.withResolvers<void>();
  t.teardown(() => ends.resolve());
  const newer = await startWorker(t, {
    ...{ database, policies: [second], tasks: { p: () => ends.promise } },
    preset: NO_HEARTBEAT,
  });
  await newer.utils.addJob("p", { k: "a" });
  await newer.sees("job:start");
  const stopping = newer.stop();
  await until("it takes no more jobs", async () => {
    const { rows } = await database.pool.query(
      "select count(*)::int as pools from dispatch_policy.workers where slots = 0",
    );
    return rows[0].pools === 1;
  });
  await newer.utils.sweep();
  t.like(await statusOf(database), { version: 1, inForceBecause: "workers" });
  ends.resolve();
  await stopping;
});

test("while workers live, processes that only add jobs change nothing, in whatever order they are deployed", async (t) => {
  const database = await lentDatabase(t);
  const version = async () => (await statusOf(database)).version;
  await app(t, database, first);
  t.is(await version(), 1, "without a worker, whoever declares it puts it in force");
  await app(t, database, second);
  t.deepEqual(await statusOf(database), { version: 2, newestVersion: 2, inForceBecause: "newest" });
  const old = await start(t, database, first);
  t.deepEqual(await statusOf(database), { version: 1, newestVersion: 2, inForceBecause: "workers" });
  await app(t, database, second);
  t.is(await version(), 1);
  const newer = await start(t, database, second);
  t.is(await version(), 2);
  await app(t, database, first);
  t.is(await version(), 2);
  await newer.stop();
  t.is(await version(), 1);
  await old.stop();
  t.deepEqual(await statusOf(database), { version: 1, newestVersion: 2, inForceBecause: "no_worker" });
  await app(t, database, first);
  t.is(await version(), 1, "without a worker it stays");
});

test("while a pool is silent, a sweep changes nothing: it may only be cut off", async (t) => {
  const database = await lentDatabase(t);
  const { utils } = await start(t, database, first);
  await (await start(t, database, second)).stop(); // its row stays, and nobody but this test writes it
  const isSecond = { definitions: (its: string) => `${its} #>> '{p,version}' = '2'` };
  const sweeps = async (what: object) => {
    await table(database.pool, "workers").set({ slots: 4, ended: false, ...what }, isSecond);
    await utils.sweep();
    const { version, inForceBecause } = await statusOf(database);
    return [version, inForceBecause];
  };
  const now = () => "clock_timestamp()";
  const alive = { stale_at: () => `${now()} + interval '1 hour'`, buried_at: null };
  t.deepEqual(await sweeps(alive), [2, "newest"]);
  t.deepEqual(await sweeps({ stale_at: now }), [2, "no_sweep"]);
  t.deepEqual(await sweeps({ buried_at: now }), [1, "workers"]);
  t.deepEqual(await sweeps(alive), [2, "newest"], "it was not dead");
});

const of = (options: object) => (version: number, max: number) =>
  definePolicy("p", { version, gates: [concurrency({ max })], ...options } as never) as unknown as AnyPolicy;
const context = (payload: unknown) => payload as { k: string; n: number };

/** Two versions of a policy, by how they say their limits and partitions. */
const KINDS: Record<string, (version: number, max: number) => AnyPolicy> = {
  "constant gates, which SQL can work out": of({ partitionBy: "k" }),
  "constant gates beside a context": of({ context, partitionBy: (ctx: { k: string }) => ctx.k }),
  "gates by context": (version, max) =>
    of({ context, partitionBy: "k", gates: [concurrency({ max: () => max })] })(version, max),
  "another partitionBy function": (version, max) =>
    of({
      context,
      partitionBy: (ctx: { k: string; n: number }) => (version === 1 ? ctx.k : `${ctx.k}-${ctx.n % 2}`),
    })(version, max),
};

/** A worker whose jobs wait until they may end, and the most that ran at once. */
async function blocking(t: Test, database: Place, policy: AnyPolicy) {
  const ends = Promise.withResolvers<void>();
  t.teardown(() => ends.resolve());
  let running = 0;
  let peak = 0;
  const p = async () => {
    running += 1;
    peak = Math.max(peak, running);
    await ends.promise;
    running -= 1;
  };
  const options = { database, policies: [policy], tasks: { p }, worker: { concurrentJobs: 8 } };
  const worker = await startWorker(t, { ...options, preset: NO_HEARTBEAT });
  await isChecked(worker.log);
  await leads(database, policy);
  return { ...worker, ends, peak: () => peak };
}

/** A pool that has this version runs the tick loop. */
const leads = ({ pool }: Place, policy: AnyPolicy) =>
  until("a pool with the version in force leads", async () => {
    const [lease] = await liveLeases(pool);
    const leader = lease && (await table(pool, "workers").one({ pool_id: lease.holder }));
    return String(leader?.definitions.p?.version) === String(versionOf(policy));
  });

const versionOf = (policy: AnyPolicy) => policyDefinition(policy).version;

const inFlight = async ({ pool }: Place): Promise<number> =>
  (await pool.query("select count(*)::int as n from dispatch_policy.in_flight_jobs")).rows[0].n;

/** Nothing waits for its partition or for the router. */
const areRouted = ({ pool }: Place) =>
  until("all are routed", async () => {
    if ((await table(pool, "keyless_jobs").count()) > 0) return false; // these arrive
    return (await table(pool, "arrivals").count()) === 0;
  });

/** Jobs of `other` go strictly by the worker's `max`, whatever their own version says. */
async function isStrict(
  t: Test,
  worker: Awaited<ReturnType<typeof blocking>>,
  other: AnyPolicy,
  max: number,
) {
  const { database } = worker;
  const producer = await app(t, database, other);
  const added = await producer.addJob("p", { k: "a", n: 0 });
  t.like(added, { staged: true, partition: null, shard: null }, "its partition is not known yet");
  const jobs = [1, 2, 3, 4].map((n) => ({ identifier: "p", payload: { k: "a", n }, jobKey: `key ${n}` }));
  await producer.addJobs(jobs);
  await producer.addJob("p", { k: "a", n: 5 }, { jobKey: "other", jobKeyMode: "unsafe_dedupe" });
  await producer.tick(); // a tick of the other version says nothing either
  await areRouted(database);
  await until("a pass has admitted what may go", async () => (await inFlight(database)) >= max);
  await worker.utils.tick();
  t.is(await inFlight(database), max);
  worker.ends.resolve();
  await worker.everythingIsReleased();
  await until("all have run", async () => {
    const { rows } = await database.pool.query("select count(*)::int as n from dispatch_policy.staged_jobs");
    return rows[0].n === 0;
  });
  await worker.everythingIsReleased();
  t.is(worker.peak(), max);
}

for (const [what, version] of Object.entries(KINDS)) {
  test(`jobs of a newer producer go by the version in force: ${what}`, async (t) => {
    const worker = await blocking(t, await lentDatabase(t), version(1, 1));
    await isStrict(t, worker, version(2, 6), 1);
  });

  test(`jobs of an older producer go by the version in force: ${what}`, async (t) => {
    const database = await lentDatabase(t);
    const old = await startWorker(t, { database, policies: [version(1, 6)], preset: NO_HEARTBEAT });
    await isChecked(old.log);
    await leads(database, version(1, 6));
    // a pool that starts with the newer version leads at once
    const worker = await blocking(t, database, version(2, 1));
    await isStrict(t, worker, version(1, 6), what.startsWith("another") ? 2 : 1);
  });
}

test("while the leader renews its lease late, limits of another version are not believed", async (t) => {
  const database = await lentDatabase(t);
  const version = KINDS["gates by context"]!;
  const old = await start(t, database, version(1, 6));
  await leads(database, version(1, 6));
  const producer = await app(t, database, version(2, 7));
  const expires_at = () => "clock_timestamp() - interval '2 seconds'";
  await table(database.pool, "leases").set({ expires_at });
  t.like(await producer.addJob("p", { k: "a" }), { partition: null });
  await old.stop();
  t.like(await producer.addJob("p", { k: "b" }), { partition: "b" }, "it has stepped down");
});

test("a job that the version in force cannot place waits, and goes as soon as a newer one is in force", async (t) => {
  const database = await lentDatabase(t);
  const keyed = (version: number, name: "k" | "tenant") =>
    definePolicy("p", { version, partitionBy: name, gates: [concurrency({ max: 1 })] });
  const old = await start(t, database, keyed(1, "k"));
  await leads(database, keyed(1, "k"));
  const producer = await app(t, database, keyed(2, "tenant"));
  await producer.addJob("p", { tenant: "a" });
  await until("it is quarantined", async () => {
    const { rows } = await database.pool.query("select error from dispatch_policy.staged_jobs");
    return /partitionBy/.test(rows[0]?.error);
  });
  t.deepEqual(old.happened, []);
  const newer = await start(t, database, keyed(2, "tenant"));
  await until("it has run", () =>
    [...old.happened, ...newer.happened].some(({ event }) => event === "job:success"),
  );
});

test("a job added past the policy is not placed by a pool of another version", async (t) => {
  const database = await lentDatabase(t);
  const version = KINDS["gates by context"]!;
  const old = await start(t, database, version(1, 6));
  await leads(database, version(1, 6));
  const newer = await start(t, database, version(2, 1));
  await leads(database, version(2, 1));
  await database.pool.query(`select graphile_worker.add_job('p', '{"k": "a"}') from generate_series(1, 4)`);
  await until("all have run", async () => {
    const { rows } = await database.pool.query(
      `select (select count(*) from dispatch_policy.staged_jobs) + (select count(*) from graphile_worker.jobs) as n`,
    );
    return rows[0].n === "0";
  });
  t.true(old.happened.length + newer.happened.length >= 4);
  t.deepEqual(await limits(database), ["concurrency 1"]);
});
