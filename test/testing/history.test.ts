// What jobs waited for, to the second: a PGlite whose clock the test moves.
import { PGlite } from "@electric-sql/pglite";
import test from "ava";
import type { TaskList } from "graphile-worker";
import type pg from "pg";
import { type AnyPolicy, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { pglitePool, runDueJobs, type VirtualClock, virtualClock } from "../../src/testing.ts";
import { silent } from "../helpers/silent.ts";

const START = new Date("2030-01-01T00:00:00.000Z");

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
  options: Omit<Parameters<typeof definePolicy>[1], "partitionBy">,
  task: TaskList[string] = () => {},
) {
  const whole = { partitionBy: "k", history: { keep: "1 day" }, ...options };
  const policy = definePolicy(name, whole as never) as AnyPolicy;
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  const began = clock.now.getTime();
  return {
    utils,
    policy: name,
    add: (...keys: string[]) => utils.addJobs(keys.map((k) => ({ identifier: name, payload: { k } }))),
    tick: async () => (await utils.tick({ policy: name })).admitted,
    run: () => runDueJobs({ pgPool: pool, policies: [policy], taskList: { [name]: task } }),
    /** In the order in which they were added. */
    waited: async () =>
      (await utils.history({ policy: name }))
        .toSorted((a, b) => a.id.localeCompare(b.id))
        .map((one) => one.waited),
    seconds: (at: Date | null) => at && (at.getTime() - began) / 1000,
  };
}

test.serial("jobs behind a throttle waited for its tokens", async (t) => {
  const it = await world("throttled", {
    gates: ({ throttle }) => [throttle({ rate: 6, per: "1 minute", burst: 1 })],
  });
  await it.add("a", "a", "a", "b");
  await it.run();
  for (const _ of [1, 2]) {
    clock.advance("10 seconds");
    await it.run();
  }
  t.deepEqual(await it.waited(), [{}, { throttle_empty: 10 }, { throttle_empty: 20 }, {}]);
});

test.serial("jobs behind a full slot waited for it, and times are those of the job", async (t) => {
  const it = await world("capped", {
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
  });
  await it.add("a", "a");
  t.is(await it.tick(), 1);
  clock.advance("7 seconds");
  await it.run();
  t.deepEqual(await it.waited(), [{}, { concurrency_full: 7 }]);
  const [last, first] = (await it.utils.history({ policy: it.policy })).toSorted((a, b) =>
    b.id.localeCompare(a.id),
  );
  t.like(first, { outcome: "succeeded", attempts: 1, error: null, partition: "a" });
  const times = ({
    addedAt,
    dueAt,
    admittedAt,
    lastAdmittedAt,
    startedAt,
    endedAt,
  }: NonNullable<typeof first>) =>
    [addedAt, dueAt, admittedAt, lastAdmittedAt, startedAt, endedAt].map(it.seconds);
  t.deepEqual(times(first!), [0, 0, 0, 0, 7, 7]);
  t.deepEqual(times(last!), [0, 0, 7, 7, 7, 7]);
});

test.serial(
  "a job that is not due waits for its time, then for the pause, then for the next pass",
  async (t) => {
    const it = await world("paused", {});
    const { utils, policy } = it;
    await utils.addJob(policy, { k: "a" }, { runAt: new Date(clock.now.getTime() + 5000) });
    await it.tick();
    clock.advance("2 seconds");
    await utils.pause({ policy });
    clock.advance("13 seconds");
    await utils.resume({ policy });
    clock.advance("4 seconds");
    await it.run();
    t.deepEqual(await it.waited(), [{ not_due: 5, paused: 10, in_line: 4 }]);
  },
);

test.serial("stops that overlap count once, and a pause before a hold", async (t) => {
  const it = await world("stopped", {});
  const { utils, policy } = it;
  await it.add("a", "b");
  await utils.hold({ policy, partition: "a", forMs: 60_000 });
  clock.advance("10 seconds");
  await utils.pause({ policy, partition: "a", until: new Date(clock.now.getTime() + 20_000) });
  clock.advance("10 seconds");
  await utils.pause({ policy });
  clock.advance("5 seconds");
  await utils.pause({ policy, until: new Date(clock.now.getTime() + 15_000) });
  clock.advance("20 seconds");
  await it.run();
  clock.advance("15 seconds");
  await it.run();
  // a: held 0 to 60, paused 10 to 40; b: paused 20 to 40
  t.deepEqual(await it.waited(), [
    { held: 30, paused: 30 },
    { in_line: 25, paused: 20 },
  ]);
});

test.serial("a pause interrupts what a gate denies, and to resume ends a hold", async (t) => {
  const it = await world("interrupted", {
    gates: ({ throttle }) => [throttle({ rate: 1, per: "100 seconds" })],
  });
  const { utils, policy } = it;
  await it.add("a", "a");
  t.is(await it.tick(), 1);
  clock.advance("10 seconds");
  await utils.pause({ policy });
  clock.advance("20 seconds");
  await utils.resume({ policy });
  await utils.hold({ policy, partition: "a", forMs: 3_600_000 });
  clock.advance("30 seconds");
  await utils.resume({ policy, partition: "a" });
  clock.advance("40 seconds");
  await it.run();
  t.deepEqual(await it.waited(), [{}, { throttle_empty: 50, paused: 20, held: 30 }]);
});

test.serial("a breaker that opened, and the probe after it", async (t) => {
  let fails = true;
  const it = await world(
    "broken",
    { breaker: { failures: 1, within: "1 minute", cooldown: "30 seconds" }, backoff: () => false },
    () => {
      if (fails) throw new Error("503");
    },
  );
  await it.add("a");
  await it.run();
  fails = false;
  await it.add("a");
  clock.advance("40 seconds");
  await it.run();
  t.deepEqual(await it.waited(), [{}, { breaker_open: 30, in_line: 10 }]);
});

test.serial("a job that was retried has one row, with all its waits", async (t) => {
  const it = await world("retried", { backoff: () => "30 seconds" }, (_payload, { job }) => {
    if (job.attempts === 1) throw new Error("503");
  });
  await it.add("a");
  clock.advance("1 second");
  await it.run();
  const [open] = await it.utils.history({ policy: it.policy });
  t.like(open, { outcome: null, endedAt: null, waited: { in_line: 1 } });
  clock.advance("32 seconds");
  await it.run();
  const jobs = await it.utils.history({ policy: it.policy });
  t.is(jobs.length, 1);
  const [{ admittedAt, lastAdmittedAt, endedAt, ...job }] = jobs as [(typeof jobs)[number]];
  t.like(job, { outcome: "succeeded", attempts: 2, error: null, waited: { not_due: 30, in_line: 3 } });
  t.deepEqual([admittedAt, lastAdmittedAt, endedAt].map(it.seconds), [1, 33, 33]);
});
