// A job that runs in another process is cancelled: it ends there, or does not start again if that process is killed.
import test from "ava";
import { addPolicyJobs, makePolicyUtils } from "../../src/index.ts";
import { TABLES, work } from "../fixtures/crash/work.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startProcess } from "../helpers/worker-process.ts";

const RECOVERED = { withinMs: 90_000 };
const why = { reason: "wrong batch", by: "ana" };
const MESSAGE = /^job \d+ was cancelled by ana: wrong batch$/;

async function world(t: Parameters<typeof testDatabase>[0] & Parameters<typeof startProcess>[0]) {
  const database = await testDatabase(t);
  const { pool } = database;
  await pool.query(TABLES);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const add = (account: string, jobs: number, more = {}) =>
    addPolicyJobs(
      pool,
      Array.from({ length: jobs }, () => ({ policy: work, payload: { account, ...more } })),
    );
  const runs = async () => (await pool.query("select job_id, pid, finished_at from runs order by id")).rows;
  const inFlight = async () => (await pool.query("select from dispatch_policy.in_flight_jobs")).rows.length;
  return { ...database, utils, add, runs, inFlight };
}

test("runs of one partition end in both processes, and those of another go on", async (t) => {
  const { url, pool, utils, add, runs, inFlight, drop } = await world(t);
  const database = { url, pool, drop };
  const processes = [await startProcess(t, database, "plain"), await startProcess(t, database, "plain")];
  await add("a", 3, { heeds: true });
  await add("b", 2, { heeds: true });
  await add("c", 2, { heeds: true });
  await until("six run", async () => (await runs()).length === 6);
  const pids = new Set((await runs()).map(({ pid }) => pid));
  t.deepEqual([...pids].toSorted(), processes.map(({ pid }) => pid).toSorted(), "in both");
  t.deepEqual(await utils.cancel({ policy: "work", partition: "a", ...why }), {
    ...{ matched: 3, changed: 3, running: 2 },
  });
  await until("their slots are back", async () => (await inFlight()) === 4);
  const { rows } = await pool.query(
    "select last_error, attempts >= max_attempts as ended from graphile_worker.jobs where last_error is not null",
  );
  t.is(rows.length, 2);
  for (const { last_error, ended } of rows) {
    t.regex(last_error, MESSAGE);
    t.true(ended);
  }
  await pool.query("insert into go values (0)");
  await until("the others end", async () => (await inFlight()) === 0);
  const ran = await runs();
  t.deepEqual([ran.length, ran.filter(({ finished_at }) => finished_at !== null).length], [6, 4]);
});

test("a cancelled job whose process is killed does not run again", async (t) => {
  const { url, pool, utils, add, runs, inFlight, drop } = await world(t);
  const database = { url, pool, drop };
  const first = await startProcess(t, database, "plain");
  await add("a", 1); // it ignores its signal
  await until("it runs", async () => (await runs()).length === 1);
  t.is((await utils.cancel({ policy: "work", ...why })).running, 1);
  first.signal("SIGKILL");
  await first.gone;
  await startProcess(t, database, "plain");
  await add("b", 1);
  await until("the other process works", async () => (await runs()).length === 2);
  await until("it has ended", async () => (await inFlight()) === 1, RECOVERED);
  const { rows } = await pool.query(
    "select last_error, attempts >= max_attempts as ended from graphile_worker.jobs where last_error is not null",
  );
  t.is(rows.length, 1);
  t.regex(rows[0].last_error, MESSAGE);
  t.true(rows[0].ended);
  await pool.query("insert into go values (0)");
  await until("all is released", async () => (await inFlight()) === 0);
  t.is((await runs()).length, 2);
});
