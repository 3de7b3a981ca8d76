// Ticks that wait for a lock, for as long as their deadline allows: releases, heartbeats and sweeps go on beside them.
import test from "ava";
import { definePolicy } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const NAMES = ["first", "second"] as const;
const JOBS_EACH = 2;
/** Longer than the deadline of a tick, 30 s. */
const PATIENT = { withinMs: 90_000 };
const HELD_TICKS = `select pid from pg_stat_activity
  where datname = current_database() and wait_event_type = 'Lock' and strpos(query, '_admit') > 0`;

test("ticks of two policies that are held for longer than their deadline delay no release, heartbeat or sweep", async (t) => {
  const database = await testDatabase(t);
  const { pool } = database;
  const hostPids = new Set<number>();
  pool.on("connect", (client) => void hostPids.add((client as never as { processID: number }).processID));
  const policies = NAMES.map((name) =>
    definePolicy(name, { partitionBy: "key", gates: ({ concurrency }) => [concurrency({ max: JOBS_EACH })] }),
  );
  const ends: (() => void)[] = [];
  let over = false;
  const task = () => new Promise<void>((resolve) => void (over ? resolve() : ends.push(resolve)));
  const worker = await startWorker(t, {
    database,
    policies,
    worker: { concurrentJobs: 10 },
    preset: { workerHeartbeatInterval: "200 ms", workerStaleAfter: "40 seconds", sweepInterval: "500 ms" },
    tasks: { first: task, second: task },
  });
  let sweeps = 0;
  worker.runner.events.on("dispatchPolicy:sweep" as never, () => {
    sweeps += 1;
  });
  const add = (count: number) =>
    worker.utils.addJobs(
      NAMES.flatMap((identifier) => Array(count).fill({ identifier, payload: { key: "a" } })),
    );
  await add(JOBS_EACH);
  await until("all run", () => ends.length === NAMES.length * JOBS_EACH);
  await pool.query(`create table public.released (pid int);
    alter function dispatch_policy_internal._admit set lock_timeout = 0`);
  await table(pool, "in_flight_jobs").before(
    "delete",
    "insert into public.released values (pg_backend_pid())",
  );
  const locker = await pool.connect();
  t.teardown(() => {
    over = true;
    for (const end of ends) end();
  });
  const letGo = async () => void (await locker.query("rollback"));
  t.teardown(() => letGo().finally(() => locker.release()));
  await locker.query("begin");
  await table(locker, "turns").lock({ step: "admit" });
  await add(1);

  const unbrokenSince = async () => (await table(pool, "workers").one()).unbroken_since;
  const before = await unbrokenSince();
  const inFlight = async () =>
    (await worker.row("select count(*)::int as n from dispatch_policy.in_flight_jobs")).n;
  const beatAt = async () =>
    (await worker.row("select heartbeat_at from dispatch_policy.workers")).heartbeat_at;
  // the deadline ends the ticks after 30 s, and the next ones are held as well
  for (let deadlines = 0; deadlines <= 1; deadlines++) {
    await until(
      `deadline ${deadlines} of each tick is over`,
      () =>
        NAMES.every((name) => {
          const ended = ({ message }: { message: string }) => message.includes(`Tick of ${name} failed`);
          return worker.log.filter(ended).length >= deadlines;
        }),
      PATIENT,
    );
    await until("both ticks are held", async () => (await pool.query(HELD_TICKS)).rowCount === NAMES.length);
    const [jobs, swept] = [await inFlight(), sweeps];
    for (let ended = 1; ended <= NAMES.length; ended++) {
      ends.shift()?.();
      await until("its slot is back", async () => (await inFlight()) === jobs - ended);
    }
    const releasedBy = (await pool.query("select pid from public.released")).rows;
    t.is(releasedBy.length, NAMES.length * (deadlines + 1));
    if (releasedBy.some(({ pid }) => hostPids.has(pid)))
      throw new Error("a release had to use the host's pool");
    for (let beats = 0; beats < 3; beats++) {
      const last = await beatAt();
      await until("another heartbeat", async () => (await beatAt()) > last);
    }
    const { rows: backends } = await pool.query(
      "select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'",
    );
    t.is(backends.filter(({ pid }) => !hostPids.has(pid)).length, 3, "connections beside the host's pool");
    await until("two more sweeps", () => sweeps >= swept + 2);
    t.is((await pool.query(HELD_TICKS)).rowCount, NAMES.length, "the ticks were held all the while");
  }
  t.deepEqual(await unbrokenSince(), before, "no heartbeat was late");
  await letGo();
  await until("the held jobs run", () => ends.length === NAMES.length);
  for (const end of ends) end();
  await worker.everythingIsReleased();
});
