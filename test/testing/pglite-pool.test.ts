// A pool of pg over a PGlite: what pg and this package ask of a server, from one session.
import type { Duplex } from "node:stream";
import { PGlite } from "@electric-sql/pglite";
import test from "ava";
import { run, WorkerPreset } from "graphile-worker";
import pg from "pg";
import { makeStreamPool } from "../../src/db/stream-pool.ts";
import { ArgumentError, definePolicy, dispatchPolicyPreset, makePolicyUtils } from "../../src/index.ts";
import { makeConnection } from "../../src/testing/pglite-connection.ts";
import { makeSession } from "../../src/testing/pglite-session.ts";
import { pglitePool } from "../../src/testing.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

let db: PGlite;
let pool: pg.Pool;

test.before(async (t) => {
  t.timeout(120_000); // PGlite's start takes seconds of processor time
  db = await PGlite.create();
  pool = pglitePool(db);
});
test.after.always(async () => {
  pool?.end().catch(() => {}); // not awaited, because it waits for clients that a failed test has not released
  await db?.close();
});

test.serial("values come back as pg reads them from a server", async (t) => {
  const server = await testDatabase(t, { migrated: false });
  const text = `select $1::int8 as big, $2::int as small, $3::text as text, $4::text[] as list, $5::bool as yes,
    $6::jsonb as json, $7::timestamptz as at, $8::bytea as bytes, $9::numeric as number, null::int as nothing,
    array[1, 2]::int8[] as bigs, 'infinity'::timestamptz as ever, '-infinity'::timestamptz as never,
    '1 day 2 hours'::interval as span, date '2030-01-31' as day, 0.5::float8 as half, 'ä€😀' as letters`;
  const values = [
    ...["9007199254740993", 7, 'a"b', ["x", 'y,"', null], true, { a: [1] }],
    ...[new Date("2030-01-01T00:00:00.123Z"), Buffer.from([0, 255]), "1.10"],
  ];
  const [here, there] = await Promise.all([pool.query(text, values), server.pool.query(text, values)]);
  t.deepEqual(here.rows, there.rows);
  t.is(here.rows[0].big, "9007199254740993");
  t.is(here.rows[0].never, Number.NEGATIVE_INFINITY);
  t.deepEqual([here.rowCount, here.command], [there.rowCount, there.command]);
});

test.serial("several statements at once, large values, and names of prepared statements", async (t) => {
  const results = (await pool.query("select 1 as n; select 2 as n")) as unknown as pg.QueryResult[];
  t.deepEqual(
    results.map(({ rows }) => rows),
    [[{ n: 1 }], [{ n: 2 }]],
  );
  const large = "x".repeat(3_000_000);
  t.is((await pool.query("select $1::text as text", [large])).rows[0].text, large);
  const [one, two] = await Promise.all([pool.connect(), pool.connect()]);
  const first = { name: "same", text: "select $1::int + 1 as n" };
  const second = { name: "same", text: "select $1::int * 10 as n" };
  for (const round of [1, 2]) {
    t.deepEqual((await one.query({ ...first, values: [round] })).rows, [{ n: round + 1 }]);
    t.deepEqual((await two.query({ ...second, values: [round] })).rows, [{ n: round * 10 }]);
  }
  one.release();
  two.release();
});

test.serial("values travel as pg writes them, so that what fails on a server fails here", async (t) => {
  await t.throwsAsync(pool.query("select $1::jsonb as list", [["a"]]), { code: "22P02" });
  const { rows } = await pool.query({ text: "select $1::int8 as n, 2 as m", values: [1], rowMode: "array" });
  t.deepEqual(rows, [["1", 2]]);
});

test.serial("what is no PGlite is an error that says what is missing", (t) => {
  for (const [wrong, message] of [
    [PGlite.create, /^pglitePool: db must be a PGlite, got a function: it has no execProtocol\(\)/],
    [Promise.resolve(db), /^pglitePool: db must be a PGlite, got a Promise: await it first$/],
    [undefined, /got undefined: it has no execProtocol\(\), .* Make one with PGlite\.create\(\)/],
    [pool, /got a BoundPool: it has no execProtocol\(\)/],
    [
      Object.create(db, { runExclusive: { value: undefined } }),
      /it has no runExclusive\(\).* tested with 0\.5\.16/,
    ],
  ] as const)
    t.throws(() => pglitePool(wrong as never), { instanceOf: ArgumentError, message });
});

test.serial("copy from stdin, which would hang the process, is refused", async (t) => {
  await pool.query("create table copied (text text)");
  const client = await pool.connect();
  for (const text of ["copy copied from stdin", "select 1; COPY copied (text)\n FROM STDIN (format csv)"])
    await t.throwsAsync(client.query(text), {
      code: "0A000",
      message: /does not work through a pool over a PGlite/,
    });
  await client.query("begin");
  await t.throwsAsync(client.query({ text: "copy copied from stdin", values: [] }), { code: "0A000" });
  await client.query("insert into copied values ('copy from stdin')");
  await client.query("rollback");
  client.release();
  t.deepEqual((await pool.query("select * from copied")).rows, []);
});

test.serial("what streams through a connection fails, and the others go on", async (t) => {
  const client = await pool.connect();
  const { stream } = (client as unknown as { connection: { stream: Duplex } }).connection;
  const { promise, resolve } = Promise.withResolvers<Error>();
  client.on("error", resolve);
  stream.write(Buffer.from("data of a copy\n"));
  t.regex((await promise).message, /use a PostgreSQL server for this test/);
  client.release(true);
  t.deepEqual((await pool.query("select 1 as n")).rows, [{ n: 1 }]);
});

test.serial("errors have PostgreSQL's code, and the connection goes on", async (t) => {
  const client = await pool.connect();
  await t.throwsAsync(client.query("select 1/0"), { code: "22012" });
  await t.throwsAsync(client.query("select $1::int", ["no"]), {
    code: "22P02",
    instanceOf: pg.DatabaseError,
  });
  await t.throwsAsync(client.query("select * from nowhere"), { code: "42P01" });
  t.deepEqual((await client.query("select 1 as n")).rows, [{ n: 1 }]);
  client.release();
});

test.serial("connect takes a callback, as in pg", async (t) => {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  pool.connect((error, client, done) => {
    if (!client) return reject(error);
    client.query("select 1 as n", (failed: Error, result: pg.QueryResult) => {
      done();
      return failed ? reject(failed) : resolve(result.rows);
    });
  });
  t.deepEqual(await promise, [{ n: 1 }]);
});

test.serial(
  "transactions of two connections do not join, and a lost connection's is rolled back",
  async (t) => {
    await pool.query("create table steps (n int)");
    const [one, two] = await Promise.all([pool.connect(), pool.connect()]);
    await one.query("begin");
    await one.query("insert into steps values (1)");
    const seen: string[] = [];
    const second = (async () => {
      await two.query("begin");
      seen.push("second began");
      await two.query("insert into steps values (2)");
      await two.query("rollback");
    })();
    await one.query("insert into steps values (3)");
    seen.push("first ends");
    await one.query("commit");
    await second;
    t.deepEqual(seen, ["first ends", "second began"]);
    t.deepEqual((await pool.query("select n from steps order by n")).rows, [{ n: 1 }, { n: 3 }]);

    await one.query("begin; delete from steps");
    one.release(true);
    t.deepEqual((await two.query("select count(*)::int as n from steps")).rows, [{ n: 2 }]);
    await t.throwsAsync(two.query("begin; select 1/0"), { code: "22012" });
    const waits = pool.query("select count(*)::int as n from steps");
    await two.query("rollback");
    t.is((await waits).rows[0].n, 2);
    two.release();
  },
);

test.serial("PGlite's own statements and transactions wait as well, and do not join", async (t) => {
  await pool.query("create table own (n int)");
  const client = await pool.connect();
  await client.query("begin; insert into own values (1)");
  const own = db.query("insert into own values (2)");
  await client.query("rollback");
  client.release();
  await own;
  t.deepEqual((await pool.query("select n from own")).rows, [{ n: 2 }]);

  let other: Promise<unknown> | undefined;
  await db.transaction(async (tx) => {
    await tx.query("insert into own values (3)");
    other = pool.query("insert into own values (4)"); // waits for this transaction
    await tx.query("select 1");
    await tx.rollback();
  });
  await other;
  t.deepEqual((await pool.query("select n from own order by n")).rows, [{ n: 2 }, { n: 4 }]);
});

test.serial(
  "a connection that waits for too long for a transaction gets an error that says why",
  async (t) => {
    const impatient = makeStreamPool(() => makeConnection(makeSession(db, 20)));
    const holder = await pool.connect();
    await holder.query("begin");
    const error = await t.throwsAsync<pg.DatabaseError>(impatient.query("select 1"), { code: "55P03" });
    t.regex(error.hint ?? "", /has one session/);
    await t.throwsAsync(impatient.query("select $1::int", [1]), { code: "55P03" });
    await holder.query("commit");
    holder.release();
    t.deepEqual((await impatient.query("select 1 as n")).rows, [{ n: 1 }]);
    await impatient.end();
  },
);

test.serial("a statement whose client has gone meanwhile does not run", async (t) => {
  await pool.query("create table late (n int)");
  const [holder, gone] = await Promise.all([pool.connect(), pool.connect()]);
  await holder.query("begin");
  const lost = t.throwsAsync(gone.query("insert into late values (1)"));
  gone.release(true);
  await holder.query("commit");
  holder.release();
  await lost;
  t.deepEqual((await pool.query("select n from late")).rows, []);
});

test.serial(
  "each connection hears the channels that it listens to, also if another one stops listening",
  async (t) => {
    const heard: string[] = [];
    const listeners = await Promise.all([pool.connect(), pool.connect(), pool.connect()]);
    for (const [n, client] of listeners.entries())
      client.on("notification", ({ channel, payload, processId }) =>
        heard.push(`${n} ${channel} ${payload} ${processId}`),
      );
    const [one, two] = listeners;
    await one.query('LISTEN "jobs:insert"; LISTEN "Quoted ""name"""');
    await two.query("listen Plain");
    await two.query('listen "jobs:insert"');
    await one.query('UNLISTEN "jobs:insert"; unlisten nothing');
    await pool.query(
      `select pg_notify('jobs:insert', 'a'), pg_notify('plain', 'b'), pg_notify('Quoted "name"', 'c')`,
    );
    await db.exec("notify plain, 'of PGlite'");
    t.deepEqual(heard.toSorted(), [
      '0 Quoted "name" c 0',
      "1 jobs:insert a 0",
      "1 plain b 0",
      "1 plain of PGlite 0",
    ]);
    await two.query("unlisten *");
    await pool.query("notify plain, 'unheard'");
    t.is(heard.length, 4);
    for (const client of listeners) client.release();
  },
);

test.serial("a worker runs unchanged, and its loop admits after a notification", async (t) => {
  const greet = definePolicy("greet", {
    partitionBy: "name",
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [greet], logger: silent });
  const greeted: string[] = [];
  const logged: string[] = [];
  const preset: GraphileConfig.Preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [greet], loopHeartbeat: "10 minutes" })],
    worker: { concurrentJobs: 4, pollInterval: 60_000, logger: silent },
  };
  const runner = await run({
    ...{ preset, pgPool: pool, noHandleSignals: true },
    taskList: { greet: async (payload) => void greeted.push((payload as { name: string }).name) },
  });
  runner.events.on("job:error", ({ error }) => logged.push(String(error)));
  const jobs = Array.from({ length: 12 }, (_, n) => ({
    identifier: "greet",
    payload: { name: `n${n % 2}` },
  }));
  await utils.addJobs(jobs);
  await until("all jobs ran", () => greeted.length === jobs.length);
  await runner.stop();
  t.deepEqual(logged, []);
  t.is((await utils.status()).policies.find(({ policy }) => policy === "greet")?.inFlight, 0);
  await utils.release();
});

test.serial("all verbs work over it", async (t) => {
  const verbs = definePolicy("verbs", {
    partitionBy: "k",
    gates: ({ throttle }) => [throttle({ rate: 1, per: "1 hour" })],
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [verbs], logger: silent });
  const { id } = await utils.addJob(verbs, { k: "a" });
  await utils.addJob(verbs, { k: "a" });
  t.is((await utils.pause({ policy: "verbs" })).changed, 1);
  t.is((await utils.tick({ policy: "verbs" })).admitted, 0);
  await utils.resume({ policy: "verbs" });
  t.is((await utils.tick({ policy: "verbs" })).admitted, 1);
  t.is((await utils.explain({ policy: "verbs", partition: "a" })).reason, "throttle_empty");
  t.deepEqual(
    (await utils.status()).policies
      .filter(({ policy }) => policy === "verbs")
      .map((one) => [one.staged, one.inFlight]),
    [[1, 1]],
  );
  await utils.releaseSlots({ jobId: id });
  await utils.sweep();
  await utils.metrics();
  await utils.doctor();
  await utils.migrate();
  await utils.release();
});

test.serial(
  "end waits for nobody, leaves the PGlite open, and a closed PGlite is an error that says so",
  async (t) => {
    const other = pglitePool(db);
    await other.query("select 1");
    await other.end();
    await t.throwsAsync(other.query("select 1"), { message: /after calling end/ });
    t.deepEqual((await db.query("select 1 as n")).rows, [{ n: 1 }]);

    const closed = Object.create(db, { closed: { value: true } }) as PGlite;
    closed.onNotification = db.onNotification.bind(db);
    closed._runExclusiveTransaction = db._runExclusiveTransaction.bind(db);
    Object.defineProperty(closed, "waitReady", { value: db.waitReady });
    const late = pglitePool(closed);
    await t.throwsAsync(late.query("select 1"), { message: /This PGlite is closed/ });
    await late.end();
  },
);
