// The helpers of `./testing` that need no PGlite, on a server.
import test from "ava";
import { ArgumentError, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { admitUntilIdle, fixedClock, inFlightCounts, runDueJobs, tickAt } from "../../src/testing.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

const minutely = definePolicy("minutely", {
  partitionBy: "k",
  gates: ({ throttle }) => [throttle({ rate: 1, per: "1 minute" })],
});

test("a clock that is made before jobs are added admits them at its time", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [minutely], logger: silent });
  t.teardown(() => utils.release());
  const clock = fixedClock();
  for (const k of ["a", "a", "b"]) await utils.addJob(minutely, { k });
  t.is((await tickAt(utils, clock.now)).admitted, 2);
  t.deepEqual(await inFlightCounts(utils), { minutely: 2 });
});

test("it stands still then: a job that is added later waits, or gets the clock's time", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [minutely], logger: silent });
  t.teardown(() => utils.release());
  const clock = fixedClock();
  t.is((await tickAt(utils, clock.now)).admitted, 0);
  const { now } = clock;
  await until("the database's clock is past the one that stands still", async () => {
    const { rows } = await pool.query("select clock_timestamp() > $1 as past", [now]);
    return rows[0].past;
  });
  await utils.addJob(minutely, { k: "later" });
  t.is((await tickAt(utils, clock.now)).admitted, 0);
  t.deepEqual(clock.now, now);
  await utils.addJob(minutely, { k: "a" }, { runAt: clock.now });
  t.is(await admitUntilIdle(utils, { now: clock.now }), 1);
  t.is(await admitUntilIdle(utils, { now: clock.advance(60_000) }), 1);
});

test("a clock with a start, and one that is advanced first", (t) => {
  const clock = fixedClock(new Date(0));
  t.deepEqual(clock.now, new Date(0));
  t.deepEqual(clock.advance(1500), new Date(1500));
  t.deepEqual(clock.now, new Date(1500));
  t.deepEqual(clock.advance("1 minute"), new Date(61_500));
  for (const wrong of [-1, Number.NaN, "soon", undefined])
    t.throws(() => clock.advance(wrong as never), { instanceOf: ArgumentError });
  t.throws(() => fixedClock("2030" as never), {
    instanceOf: ArgumentError,
    message: 'fixedClock: start must be a valid Date, got "2030"',
  });
  const before = Date.now();
  const started = fixedClock().advance(60_000).getTime() - 60_000;
  t.true(started >= before + 1, "a job may have been added within the millisecond that Date.now() cuts off");
  t.true(started <= Date.now() + 1);
});

test("runDueJobs works over a server", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [minutely], logger: silent });
  t.teardown(() => utils.release());
  for (const k of ["a", "a", "b"]) await utils.addJob(minutely, { k });
  const ran = await runDueJobs({ pgPool: pool, policies: [minutely], taskList: { minutely: () => {} } });
  t.deepEqual(ran.map(({ payload }) => payload).toSorted(byKey), [{ k: "a" }, { k: "b" }]);
  t.deepEqual(await inFlightCounts(utils), { minutely: 0 });
});

const byKey = (one: unknown, other: unknown) => JSON.stringify(one).localeCompare(JSON.stringify(other));
