// Policies over virtual time: PGlite asks Date.now() for each time, so a test moves the clock of the whole database.
import { PGlite } from "@electric-sql/pglite";
import test from "ava";
import { type TaskList, WorkerPreset } from "graphile-worker";
import type pg from "pg";
import {
  type AnyPolicy,
  ArgumentError,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  RetryAfter,
} from "../../src/index.ts";
import { pglitePool, runDueJobs, tickAt, type VirtualClock, virtualClock } from "../../src/testing.ts";
import { silent } from "../helpers/silent.ts";

const START = new Date("2030-01-01T00:00:00.000Z");
const realDate = Date;

let clock: VirtualClock;
let db: PGlite;
let pool: pg.Pool;

test.before(async (t) => {
  t.timeout(120_000); // PGlite's start takes seconds of processor time
  clock = virtualClock(START);
  db = await PGlite.create();
  pool = pglitePool(db);
});
test.after.always(async () => {
  await pool?.end();
  await db?.close();
  clock?.restore();
});

/** Each test has a task and a policy of its own. */
async function world(
  name: string,
  options: Parameters<typeof definePolicy>[1],
  task: TaskList[string] = () => {},
) {
  const policy = definePolicy(name, options as never) as AnyPolicy;
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  const run = () => runDueJobs({ pgPool: pool, policies: [policy], taskList: { [name]: task } });
  return {
    utils,
    run,
    add: (...keys: string[]) => utils.addJobs(keys.map((k, n) => ({ identifier: name, payload: { k, n } }))),
    tick: async () => (await utils.tick({ policy: name })).admitted,
    ran: async () =>
      (await run()).map(({ payload, error }) => [(payload as { k: string }).k, error === null]),
  };
}

test.serial(
  "the database's time is the clock's, in columns, functions and views, to the microsecond",
  async (t) => {
    const times = async () =>
      (await pool.query("select now() as now, clock_timestamp() as clock, current_date::text as day")).rows;
    const at = clock.now;
    t.deepEqual(await times(), [{ now: at, clock: at, day: "2030-01-01" }]);
    await pool.query("create table stamps (at timestamptz default now())");
    clock.advance("2 days");
    await pool.query("insert into stamps default values");
    const { rows } = await pool.query("select at, at = clock_timestamp() as same from stamps");
    t.deepEqual(rows, [{ at: new Date(Date.parse("2030-01-03")), same: true }]);
    clock.advance(0.25);
    const [{ us }] = (await pool.query("select extract(microsecond from clock_timestamp())::int as us")).rows;
    t.is(us, 250);
    clock.advance(0.75);
  },
);

test.serial("the process has the same time, and Date stays what it was otherwise", (t) => {
  t.is(Date.now(), clock.now.getTime());
  t.is(realDate.now(), clock.now.getTime(), "also for those who have kept it");
  t.deepEqual(new Date(), clock.now);
  t.true(new Date() instanceof Date);
  t.true(new realDate() instanceof Date);
  t.is(new Date(0).getTime(), 0);
  t.is(new Date(2030, 0, 1).getFullYear(), 2030);
  t.is(Date.UTC(2030, 0, 1), START.getTime());
  t.is(Date(), clock.now.toString());
  class Later extends Date {}
  t.deepEqual(new Later().getTime(), clock.now.getTime());
  t.true(new Later() instanceof Later);
});

test.serial("a clock refuses what it cannot do, and a second one", (t) => {
  t.throws(() => virtualClock(), { instanceOf: ArgumentError, message: /another one is installed/ });
  t.throws(() => virtualClock("2030" as never), {
    instanceOf: ArgumentError,
    message: /must be a valid Date/,
  });
  for (const wrong of [-1, Number.NaN, "soon"])
    t.throws(() => clock.advance(wrong as never), { instanceOf: ArgumentError });
});

test.serial("a throttle admits exactly what it says, second by second", async (t) => {
  const { utils, add, tick } = await world("throttled", {
    partitionBy: "k",
    gates: ({ throttle }) => [throttle({ rate: 60, per: "1 minute", burst: 5 })],
  });
  await add(...Array.from({ length: 100 }, () => "a"));
  const admitted = [await tick()];
  for (const by of [999, 1, 1000, 10_000, 60_000] as const) {
    clock.advance(by);
    admitted.push(await tick());
  }
  t.deepEqual(admitted, [5, 0, 1, 1, 5, 5]);
  const { nextEligibleAt } = await utils.tick({ policy: "throttled" });
  t.is(Number(nextEligibleAt), clock.now.getTime() + 1000);
  clock.advance(500);
  t.is((await tickAt(utils, clock.now, { policy: "throttled" })).admitted, 0);
  await utils.release();
});

test.serial("concurrency counts what runs, and a release lets the next one go", async (t) => {
  let most = 0;
  let running = 0;
  const { utils, add, tick, ran } = await world(
    "capped",
    { partitionBy: "k", gates: ({ concurrency }) => [concurrency({ max: 2 })] },
    async () => {
      most = Math.max(most, ++running);
      await null;
      running--;
    },
  );
  await add("a", "a", "a", "b", "a");
  t.is(await tick(), 3, "two of a, one of b");
  t.is(await tick(), 0);
  const runs = await ran();
  t.is(runs.length, 5);
  t.true(runs.every(([, succeeded]) => succeeded));
  t.is(most, 1, "one at a time");
  t.deepEqual(await ran(), []);
  await utils.release();
});

test.serial("an operator's hold ends by virtual time", async (t) => {
  const { utils, add, ran } = await world("on_hold", { partitionBy: "k", gates: () => [] });
  await add("a", "b");
  await utils.hold({ policy: "on_hold", partition: "a", forMs: 600_000 });
  t.deepEqual(await ran(), [["b", true]]);
  clock.advance(599_000);
  t.deepEqual(await ran(), []);
  t.is((await utils.explain({ policy: "on_hold", partition: "a" })).reason, "held");
  clock.advance("1 second");
  t.deepEqual(await ran(), [["a", true]]);
  await utils.release();
});

test.serial("a failed job runs again after its back-off, and a job counts its attempts", async (t) => {
  let fails = 2;
  const { utils, add, run } = await world(
    "retried",
    { partitionBy: "k", gates: ({ concurrency }) => [concurrency({ max: 1 })], backoff: () => "30 seconds" },
    () => {
      if (fails-- > 0) throw new Error("not yet");
    },
  );
  await add("a");
  const outcomes: unknown[] = [];
  for (const by of [0, 29_999, 1, 30_000]) {
    clock.advance(by);
    for (const { attempt, error, task, payload } of await run())
      outcomes.push([by, attempt, (error as Error | null)?.message ?? null, task, payload]);
  }
  const same = ["retried", { k: "a", n: 0 }];
  t.deepEqual(outcomes, [
    [0, 1, "not yet", ...same],
    [1, 2, "not yet", ...same],
    [30_000, 3, null, ...same],
  ]);
  await utils.release();
});

test.serial("RetryAfter holds the partition, and one job goes first afterwards", async (t) => {
  let refuses = true;
  const { utils, add, ran, tick } = await world("probed", { partitionBy: "k", gates: () => [] }, () => {
    if (refuses) throw new RetryAfter("1 hour", { reason: "429" });
  });
  await add("a", "a", "a");
  const refused = await ran();
  t.true(
    refused.length > 0 && refused.every(([, succeeded]) => !succeeded),
    "also those that were admitted before",
  );
  t.is(await tick(), 0);
  clock.advance("1 hour");
  refuses = false;
  t.deepEqual(await ran(), [
    ["a", true],
    ["a", true],
    ["a", true],
  ]);
  await utils.release();
});

test.serial("what may go in some milliseconds waits until the clock is there", async (t) => {
  const { utils, add, ran } = await world("soon", {
    partitionBy: "k",
    gates: ({ throttle }) => [throttle({ rate: 100, per: "1 second", smooth: true })],
  });
  await add("a", "a", "a");
  t.deepEqual(await ran(), [["a", true]]);
  clock.advance(10);
  t.deepEqual(await ran(), [["a", true]]);
  await utils.release();
});

test.serial("runDueJobs takes a preset, runs jobs without a policy, and names what is wrong", async (t) => {
  const policy = definePolicy("by_preset", {
    partitionBy: "k",
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
  });
  const preset = { extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy] })] };
  const utils = await makePolicyUtils({ pgPool: pool, preset, logger: silent });
  const seen: unknown[] = [];
  const taskList: TaskList = {
    by_preset: policy.task(async (payload, helpers) => {
      seen.push([helpers.dispatchPolicy.partition, payload]);
      await helpers.addJob("plain_task", { of: payload });
    }),
    plain_task: async () => {},
  };
  await utils.addJob(policy, { k: "a" });
  const ran = await runDueJobs({ pgPool: pool, preset, taskList });
  t.deepEqual(
    ran.map(({ task, attempt, error }) => [task, attempt, error]),
    [
      ["by_preset", 1, null],
      ["plain_task", 1, null],
    ],
  );
  t.deepEqual(seen, [["a", { k: "a" }]]);
  for (const [options, message] of [
    [{}, /either "policies" or "preset", got undefined/],
    [{ preset, policies: [policy] }, /got both/],
    [{ policies: [policy], tasks: {} }, /tasks/],
  ] as const)
    await t.throwsAsync(runDueJobs({ pgPool: pool, taskList, ...options } as never), {
      instanceOf: ArgumentError,
      message,
    });
  await utils.release();
});

test.serial("runDueJobs throws if it cannot fetch jobs, and says what to do", async (t) => {
  const { trace } = console; // Graphile Worker prints such errors
  console.trace = () => {};
  t.teardown(() => Object.assign(console, { trace }));
  const { utils, run } = await world("set_up", { partitionBy: "k" });
  const message = /^runDueJobs: jobs cannot be fetched: .* call makePolicyUtils first/;
  for (const schema of ["dispatch_policy, dispatch_policy_internal", "graphile_worker"]) {
    await pool.query(`drop schema ${schema} cascade`);
    await t.throwsAsync(run(), { message });
    await utils.migrate();
    t.deepEqual(await run(), []);
  }
  await utils.release();
});

test.serial("restore gives Date back, once, and a new clock may be made", async (t) => {
  const databaseNow = async (): Promise<Date> => (await pool.query("select now()")).rows[0].now;
  clock.restore();
  t.is(globalThis.Date, realDate);
  t.true(Math.abs(Date.now() - (await databaseNow()).getTime()) < 60_000);
  t.true(Math.abs(Date.now() - (performance.timeOrigin + performance.now())) < 60_000);
  const other = virtualClock(START);
  clock.restore();
  t.is(Date.now(), other.now.getTime(), "a restored clock restores nothing again");
  t.deepEqual(await databaseNow(), START, "also a clock that is made after the PGlite");
  other[Symbol.dispose]();
  t.is(globalThis.Date, realDate);
  t.true(Date.now() < START.getTime());
});
