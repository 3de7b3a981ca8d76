// The connections beside the host's pool. Heartbeats, looks for cancelled jobs and cancels of hung statements share one.
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { makeOwnPool } from "../../src/db/own-pool.ts";
import { makePatience } from "../../src/db/patience.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";

const PID = "select pg_backend_pid() as pid";

async function oneConnection(t: ExecutionContext, patience = makePatience(10_000, 10_000), url?: string) {
  const { pool, url: direct } = await testDatabase(t);
  const to = url ? quietPool(url) : pool;
  const own = makeOwnPool({
    withPgClient: async () => t.fail("the host's pool is not needed") as never,
    ...{ pgPool: to, max: 1, patience },
    onFallback: (error) => t.fail(error.message),
  });
  t.teardown(own.close);
  const pid = async (): Promise<number> => (await own.run((client) => client.query(PID))).rows[0].pid;
  return { own, pool, pid, url: direct };
}

/** The server's own count of backends whose statement has this text. */
async function running(pool: pg.Pool, text: string): Promise<number> {
  const { rows } = await pool.query(
    "select from pg_stat_activity where strpos(query, $1) > 0 and pid <> pg_backend_pid() and datname = current_database() and state = 'active'",
    [text],
  );
  return rows.length;
}

test("callbacks that come at once run one after another, on one connection", async (t) => {
  const { own } = await oneConnection(t);
  const steps: string[] = [];
  const pidOf = (name: string) =>
    own.run(async (client) => {
      steps.push(`${name} begins`);
      const { rows } = await client.query(PID);
      await delay(20);
      steps.push(`${name} ends`);
      return rows[0].pid;
    });
  const [one, other] = await Promise.all([pidOf("one"), pidOf("other")]);
  t.is(one, other);
  t.deepEqual(steps, ["one begins", "one ends", "other begins", "other ends"]);
});

test("while the connection is in use so many callbacks go to the host's pool, and further ones to what is free first", async (t) => {
  const { pool } = await testDatabase(t);
  let lent = 0;
  const own = makeOwnPool({
    withPgClient: async (callback) => {
      lent++;
      const client = await pool.connect();
      return callback(client).finally(() => client.release());
    },
    ...{ pgPool: pool, max: 1, beside: 1, patience: makePatience(10_000, 10_000) },
    onFallback: (error) => t.fail(error.message),
  });
  t.teardown(own.close);
  const [ends, besideEnds] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const pidOf = (before: Promise<void> = Promise.resolve()) =>
    own.run(async (client) => {
      const { rows } = await client.query(PID);
      await before;
      return rows[0].pid as number;
    });
  const its = await pidOf();
  const held = pidOf(ends.promise);
  const beside = await pidOf();
  t.not(beside, its);
  const borrowed = pidOf(besideEnds.promise);
  await until("it has a client of the host's pool", () => lent === 2);
  const waiting = pidOf();
  t.is(await Promise.race([waiting, delay(100)]), undefined);
  besideEnds.resolve();
  t.deepEqual([await borrowed, await waiting], [beside, beside], "though the own one is in use still");
  const last = pidOf();
  ends.resolve();
  t.deepEqual([await held, await last], [its, its]);
});

test("a statement that the database refuses leaves its connection to the next", async (t) => {
  const { own, pid } = await oneConnection(t);
  const before = await pid();
  await t.throwsAsync(
    own.run((client) => client.query("select 1 / 0")),
    { message: /division by zero/ },
  );
  t.is(await pid(), before);
});

test("the server ends what waits too long for a lock or runs too long, in the same connection", async (t) => {
  const { own, pool, pid } = await oneConnection(t, makePatience(500, 500));
  const before = await pid();
  const holder = await pool.connect();
  await holder.query("begin");
  await table(holder, "migrations").lock();
  const waits = own.run((client) => table(client, "migrations").lock());
  t.regex((await t.throwsAsync<Error & { code: string }>(waits)).code, /^(55P03|57014)$/);
  const sleeps = own.run((client) => client.query("select pg_sleep(600)"));
  t.is((await t.throwsAsync<Error & { code: string }>(sleeps)).code, "57014");
  await holder.query("rollback");
  holder.release();
  t.is(await pid(), before);
});

test("each statement that was given up makes the next one's time longer, and an answer makes it short again", async (t) => {
  const patience = makePatience(100, 350);
  const { own } = await oneConnection(t, patience);
  const times: number[] = [];
  for (let n = 0; n < 3; n++) {
    await t.throwsAsync(own.run((client) => client.query("select pg_sleep(600)")));
    times.push(patience.ms);
  }
  t.deepEqual(times, [200, 350, 350]);
  await until("a quick answer", async () => {
    await own.run((client) => client.query(PID));
    return patience.ms === 100;
  });
});

test("a backend that is silent is ended before the next statement, so there is never a second one", async (t) => {
  const { own, pool, pid } = await oneConnection(t, makePatience(400, 400));
  const silent = await pid();
  // as if the server were: its own time-out does not come
  const hangs = () =>
    own.run((client) => client.query("set statement_timeout = 0; select pg_sleep(600) /* hangs */"));
  for (let n = 0; n < 3; n++) {
    await t.throwsAsync(hangs(), { message: /no answer from the database within 400 ms/ });
    t.is(await running(pool, "/* hangs */"), 1);
  }
  t.not(await pid(), silent);
  t.is(await running(pool, "/* hangs */"), 0);
});
