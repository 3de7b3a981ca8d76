// A new definition of a policy that has partitions already.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { Logger, run, WorkerPreset } from "graphile-worker";
import {
  concurrency,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  throttle,
} from "../../src/index.ts";
import { type TestDatabase, testDatabase } from "../helpers/database.ts";
import { engine, concurrency as gate } from "../helpers/engine.ts";
import { limitsByPartition, partitionsWithLimiters } from "../helpers/limits.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

type Tenant = { k: string; plan?: { rate: number } };

const before = definePolicy("p", {
  context: (payload: unknown) => payload as Tenant,
  partitionBy: (ctx) => ctx.k,
  gates: [concurrency({ max: 5 })],
});

/** Its new gate needs a plan, which the contexts of old partitions lack. */
const after = definePolicy("p", {
  context: (payload: unknown) => payload as Tenant,
  partitionBy: (ctx) => ctx.k,
  gates: [
    throttle<Tenant>({ rate: (ctx) => ctx.plan!.rate, per: "1 second" }),
    concurrency({ name: "concurrency", max: 7 }),
  ],
});

/** Partitions a to e of the policy as it was; c and d are too old for the one that comes. */
async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies: [before], logger: silent });
  for (const k of ["a", "b", "c", "d", "e"])
    await utils.addJob(before, { k, ...(k !== "c" && k !== "d" && { plan: { rate: 9 } }) });
  await utils.tick({ policy: "p" });
  await utils.release();
  return database;
}

const WARNING =
  /policy "p" has changed. 2 of 5 partitions keep their limits.*The first is "[cd]": policy "p": throttle: rate threw/;

test("a pool starts though some partitions' limits cannot be worked out again, and runs their jobs", async (t) => {
  const database = await world(t);
  const ran: string[] = [];
  const said: string[] = [];
  const logger = new Logger(() => (level, message) => void (level === "warning" && said.push(message)));
  const runner = await run({
    preset: { extends: [WorkerPreset, dispatchPolicyPreset({ policies: [after] })], worker: { logger } },
    pgPool: database.pool,
    noHandleSignals: true,
    taskList: { p: async (payload) => void ran.push((payload as Tenant).k) },
  });
  t.teardown(() => runner.stop());
  await until("all ran", () => ran.length === 5);
  t.deepEqual(ran.toSorted(), ["a", "b", "c", "d", "e"]);
  t.is(said.length, 1, said.join("\n"));
  t.regex(said[0]!, WARNING);
});

test("what can be worked out again is, the rest keeps its limits until its next job", async (t) => {
  const { pool } = await world(t);
  const said: string[] = [];
  const logger = new Logger(() => (level, message) => void (level === "warning" && said.push(message)));
  const utils = await makePolicyUtils({ pgPool: pool, policies: [after], logger });
  t.teardown(() => utils.release());
  t.is(said.length, 1, said.join("\n"));
  t.regex(said[0]!, WARNING);
  await utils.tick({ policy: "p" });

  const [old, now] = [["concurrency 5"], ["concurrency 7", "throttle 9"]];
  t.deepEqual(await limitsByPartition(pool), { a: now, b: now, c: old, d: old, e: now });

  await utils.addJob(after, { k: "c", plan: { rate: 9 } });
  await utils.tick({ policy: "p" });
  t.deepEqual((await limitsByPartition(pool)).c, now);
});

/** The caps of the partitions, in order of their ids. */
async function capsOf({ pool }: TestDatabase): Promise<number[]> {
  return (await partitionsWithLimiters(pool, "id")).map(({ limiters }) => limiters[0]?.max ?? Number.NaN);
}

/** As if the limits had not been worked out by the definition in force, after this partition. */
async function isAsBefore({ pool }: TestDatabase, after: string | null): Promise<void> {
  await table(pool, "limiters").set({ "numbers.max": 5 }, { kind: "concurrency" });
  const { definition_hash: hash } = await table(pool, "policies").one();
  await table(pool, "definitions").set({ resolves: true, resolved_to: after }, { hash });
}

const DECLARER = fileURLToPath(new URL("../fixtures/crash/declarer.ts", import.meta.url));

/** A process that starts with this cap, and ends. Gives the signal that ended it. */
async function starts(
  { url }: TestDatabase,
  { max, version = 0, diesAfter = "" }: { max: number; version?: number; diesAfter?: string },
): Promise<string | null> {
  const env = { DATABASE_URL: url, MAX: `${max}`, VERSION: `${version}`, DIES_AFTER: diesAfter };
  const child = spawn(process.execPath, [DECLARER], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [code, signal] = await once(child, "exit");
  if (signal === null && code !== 0) throw new Error(`the declarer ended with ${code}`);
  return signal;
}

const all = (max: number) => Array(5).fill(max);

async function isResolving({ pool }: TestDatabase): Promise<boolean> {
  return (await pool.query("select resolving from dispatch_policy.policies")).rows[0].resolving;
}

test("a process is killed as it brings a new definition: the next one works the limits out", async (t) => {
  const database = await world(t);
  t.is(await starts(database, { max: 7, diesAfter: "_declare_policy" }), "SIGKILL");
  t.true(await isResolving(database));
  t.deepEqual(await capsOf(database), all(5));
  await starts(database, { max: 7 });
  t.deepEqual(await capsOf(database), all(7));
  t.false(await isResolving(database));
});

test("it goes on from the page where the killed one was", async (t) => {
  const database = await world(t);
  await starts(database, { max: 6 });
  const partitions = await table(database.pool, "partitions").all({}, "id");
  await isAsBefore(database, partitions[1].id);
  await starts(database, { max: 6 });
  t.deepEqual(await capsOf(database), [5, 5, 6, 6, 6]);
});

test("a leader that has the same definition goes on as well, after a sweep", async (t) => {
  const database = await world(t);
  const capped = definePolicy("p", { partitionBy: "k", gates: [concurrency({ max: 7 })] });
  await startWorker(t, {
    ...{ database, policies: [capped], tasks: { p: async () => {} } },
    preset: { sweepInterval: "200 milliseconds" },
  });
  const caps = async () => (await capsOf(database)).join();
  const isDone = async () => (await caps()) === "7,7,7,7,7" && !(await isResolving(database));
  await until("the worker has worked them out at its start", isDone);
  await isAsBefore(database, null);
  await until("a sweep has worked them out", isDone);
  t.pass();
});

test("two that go on at once: each page is taken in once, and a third definition ends both", async (t) => {
  const { pool } = await world(t);
  const { definition_hash: hash } = await table(pool, "policies").one();
  const definitions = table(pool, "definitions");
  await definitions.set({ hash: "hash", resolves: true }, { hash });
  const page = (hash: string, after: string | null, last: string | null) =>
    pool.query("select dispatch_policy_internal._resolve_again('p', $1, $2, $3, '[]') as goes_on", [
      hash,
      after,
      last,
    ]);
  const goesOn = async (...args: Parameters<typeof page>) => (await page(...args)).rows[0].goes_on;
  const [first, second] = ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"];
  t.deepEqual((await Promise.all([goesOn("hash", null, first), goesOn("hash", null, first)])).toSorted(), [
    false,
    true,
  ]);
  t.true(await goesOn("hash", first, second));
  await definitions.set({ hash: "other", resolved_to: null });
  t.false(await goesOn("hash", second, null));
  t.true(await goesOn("other", null, null));
});

test("limits that a job brings while a page is worked out stay", async (t) => {
  const it = await engine(t, { gates: [gate(10)] });
  await it.stage("a");
  await it.route();
  await it.table("definitions").set({ resolves: true });
  const page = await it.pool.query(
    "select * from dispatch_policy_internal._partitions_to_resolve('p', null, 1000)",
  );
  const [{ id, arrival_id: arrivalId }] = page.rows;
  const { partitions } = it.batch(["a"]) as { partitions: object[] };
  const resolve = (last: string) =>
    it.pool.query("select dispatch_policy_internal._resolve_again('p', 'hash', null, $1, $2)", [
      last,
      JSON.stringify(partitions.map((one) => ({ ...one, id, arrivalId }))),
    ]);
  await it.stage("a", { gates: [gate(1)] });
  for (const when of ["before", "after"]) {
    await resolve(id);
    await it.route();
    t.is((await it.limiter("concurrency", "a")).max, 1, `${when} the router has seen the job`);
    await it.table("definitions").set({ resolved_to: null });
  }
});

test("a higher version is in force although a process of the lower one has just added a job", async (t) => {
  const capped = (max: number, version: number) =>
    definePolicy("p", { version, partitionBy: "k", gates: [concurrency({ max })] });
  const [older, newer] = [capped(5, 0), capped(7, 1)];
  const { pool } = await testDatabase(t);
  const start = async (policy: typeof older) => {
    const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
    t.teardown(() => utils.release());
    return utils;
  };
  const caps = async () =>
    (
      await pool.query(
        "select scope_key as key, max from dispatch_policy.limiters where gate = 'concurrency'",
      )
    ).rows;
  const old = await start(older);
  await old.addJob("p", { k: "a" });
  await old.tick();
  await old.addJob("p", { k: "a" }); // no router has seen it when the newer process starts
  await start(newer);
  await old.tick();
  t.deepEqual(await caps(), [{ key: "a", max: 7 }]);
  await old.addJob("p", { k: "a" });
  await old.tick();
  t.deepEqual(await caps(), [{ key: "a", max: 7 }]);
});

test("a deployment back and forth: of one version the process that started last is in force", async (t) => {
  const database = await world(t);
  for (const max of [7, 5, 7]) {
    await starts(database, { max });
    t.deepEqual(await capsOf(database), all(max));
  }
});

test("a lower version changes nothing, whenever its process starts, and a higher one does", async (t) => {
  const database = await world(t);
  await starts(database, { max: 8, version: 2 });
  t.deepEqual(await capsOf(database), all(8));
  await starts(database, { max: 7, version: 1 });
  t.deepEqual(await capsOf(database), all(8));
  await starts(database, { max: 9, version: 3 });
  t.deepEqual(await capsOf(database), all(9));
});

test("two live definitions of one version show in the status, and the second worker warns of them", async (t) => {
  const capped = (max: number, version = 0) =>
    definePolicy("p", { version, partitionBy: "k", gates: [concurrency({ max })] });
  const tasks = { p: async () => {} };
  const first = await startWorker(t, { policies: [capped(5)], tasks });
  const live = (count: number) =>
    until(`${count} live`, async () => (await first.utils.status()).policies[0]?.liveDefinitions === count);
  await live(1);
  const second = await startWorker(t, { policies: [capped(6)], tasks, database: first.database });
  await live(2);
  await until("it warns", () =>
    second.log.some(
      ({ level, message }) => level === "warning" && message.includes('two definitions of policy "p"'),
    ),
  );
  await second.stop();
  await live(1);
  t.pass();
});
