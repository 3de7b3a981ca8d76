// The doctor on the server and the connection: replica, pooler, notifications, transactions, autovacuum, clocks.
import test from "ava";
import { run, WorkerPreset } from "graphile-worker";
import { startPostgres } from "../../../scripts/postgres/start.ts";
import { makeEngine } from "../../../src/db/engine.ts";
import { dispatchPolicyPreset, makePolicyUtils } from "../../../src/index.ts";
import { rowsOf, runCommand } from "../../helpers/command.ts";
import { quietPool, testDatabase } from "../../helpers/database.ts";
import { patient } from "../../helpers/doctor.ts";
import { findPgBouncer, pgBouncer } from "../../helpers/pgbouncer.ts";
import { greet } from "../../helpers/policies.ts";
import { silent } from "../../helpers/silent.ts";
import { nameOf, relationOf, table } from "../../helpers/table.ts";
import { until } from "../../helpers/until.ts";

const program = findPgBouncer();
const pooled = program ? test : test.skip;
if (!program)
  console.error("# Skipped: the doctor through PgBouncer, which is not installed (or name it in PGBOUNCER)");

test("a replica is found", async (t) => {
  const server = await startPostgres({ own: true, restartable: true });
  t.teardown(() => server.stop());
  const utils = await makePolicyUtils({ connectionString: server.url, policies: [greet], logger: silent });
  await utils.release();
  const pool = quietPool(server.url);
  t.teardown(() => pool.end());
  const { rows } = await pool.query("select current_setting('data_directory') as folder");
  await pool.query(`copy (select 1 where false) to '${rows[0].folder}/standby.signal'; checkpoint`);
  // it waits until the server takes writes: that is never
  void server.restart!().catch((error) =>
    t.log(`The restart has ended with the server: ${error.message.length}`),
  );
  await until("it is a replica", async () => {
    const answer = await pool.query("select pg_is_in_recovery() as replica").catch(() => null);
    return answer?.rows[0].replica;
  });
  const { code, stdout, stderr } = await runCommand(server.url, "doctor", "--json");
  t.is(code, 1, stderr);
  t.like(rowsOf(stdout), [{ id: "replica", severity: "critical" }]);
});

/**
 * The queue is the whole server's. A listener in another test's database holds up to four pages of it until its turn comes, and
 * the test's own notifications fill about ninety of the million.
 */
const MORE_THAN_OTHERS = 2e-5;

test("a full notification queue is found", async (t) => {
  const { findings, session } = await patient(t);
  const listener = await session();
  await listener.query("listen it");
  await listener.query("begin; select 1"); // a session reads no notification within a transaction
  const producer = await session();
  await producer.query("select pg_notify('it', repeat('x', 7000) || i) from generate_series(1, 100) i");
  t.deepEqual(await findings("notify-queue"), []);
  const [found] = await findings("notify-queue", { notifyQueue: MORE_THAN_OTHERS });
  t.like(found, { severity: "warning" });
  t.regex(found!.sentence, /^PostgreSQL's notification queue is 0\.0\d+ % full\./);
  await listener.query("commit");
  await until(
    "it is empty",
    async () => (await findings("notify-queue", { notifyQueue: MORE_THAN_OTHERS })).length === 0,
  );
});

test("a session that is idle in a transaction with our rows locked is found, one that only reads is not", async (t) => {
  const { utils, findings, session } = await patient(t);
  await utils.addJob("greet", { name: "Ana" });
  const [locks, reads] = [await session(), await session()];
  const { rows } = await locks.query("select pg_backend_pid() as pid");
  for (const one of [locks, reads]) await one.query("begin");
  await table(locks, "staged_jobs").lock();
  await table(reads, "staged_jobs").all();
  t.deepEqual(await findings("idle-transaction"), []);
  const found = await until("it is idle for long", async () => {
    const all = await findings("idle-transaction", { idleTransactionMs: 1 });
    return all.length > 0 ? all : null;
  });
  t.deepEqual(
    found.map(({ mend }) => mend),
    [`select pg_terminate_backend(${rows[0].pid});`],
  );
});

test("a table without autovacuum, and one that it does not keep up with, are found", async (t) => {
  const { pool, utils, findings } = await patient(t, [greet], await testDatabase(t));
  await pool.query(`alter table ${nameOf("staged_jobs")} set (autovacuum_enabled = off)`);
  const [off] = await findings("autovacuum-off");
  t.is(
    off?.sentence,
    `Autovacuum is switched off for table "${relationOf("staged_jobs")}", so it grows without end.`,
  );
  await utils.addJobs(
    Array.from({ length: 20 }, (_, i) => ({ identifier: "greet", payload: { name: `n${i}` } })),
  );
  await utils.remove({ policy: "greet" });
  const behind = await until(
    "statistics say so",
    async () => (await findings("autovacuum-behind", { deadRows: 10 }))[0],
  );
  t.true(behind.sentence.startsWith(`Table "${relationOf("staged_jobs")}"`), behind.sentence);
  t.regex(behind.sentence, /" has \d+ dead rows beside 0 live ones/);
  t.deepEqual(await findings("autovacuum-behind"), []);
  await pool.query(behind.mend);
  await pool.query(off!.mend);
  await until(
    "it is clean",
    async () => (await findings("autovacuum-behind", { deadRows: 10 })).length === 0,
  );
  t.deepEqual(await findings("autovacuum-off"), []);
});

test("a worker whose clock is off is found", async (t) => {
  const { pool, utils, findings } = await patient(t);
  const engine = makeEngine("dispatch_policy");
  const beat = (clockBehindMs: number) => {
    const pool = {
      id: "p1",
      slots: 1,
      tasks: [],
      host: "host1",
      pid: 42,
      staleAfterMs: 60_000,
      clockBehindMs,
      saidOn: null,
    };
    const bid = { policies: [], shards: null, ttlMs: 1000, bids: false };
    return utils.withPgClient((client) => engine.beat(client, pool, bid));
  };
  await beat(900);
  t.deepEqual(await findings("clock-off"), []);
  await beat(90_000);
  const [behind] = await findings("clock-off");
  t.is(behind?.sentence, "The clock of process 42 on host1 is 90.0 s behind the database's.");
  await beat(-5000);
  const [ahead] = await findings("clock-off");
  t.is(ahead?.sentence, "The clock of process 42 on host1 is 5.0 s ahead of the database's.");
  await table(pool, "workers").remove();
});

pooled("a worker behind a pooler in transaction mode is found from a direct connection", async (t) => {
  const { findings, url } = await patient(t);
  t.deepEqual(await findings("transaction-pooler"), []);
  const behind = quietPool(await pgBouncer(t, program!, url));
  const runner = await run({
    preset: {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies: [greet] })],
      worker: { preparedStatements: false, logger: silent },
    },
    pgPool: behind,
    noHandleSignals: true,
    taskList: { greet: () => {} },
  });
  t.teardown(async () => {
    await runner.stop();
    await behind.end();
  });
  const [found] = await until("it says so", async () => {
    const all = await findings("transaction-pooler");
    return all.length > 0 ? all : null;
  });
  t.like(found, { severity: "warning" });
  t.regex(found!.sentence, new RegExp(`^The worker of process ${process.pid} on .* is behind a pooler`));
});

pooled(
  "the doctor's own pooler is worth knowing, and the doctor leaves its sessions as they were",
  async (t) => {
    const { url } = await patient(t);
    const through = await pgBouncer(t, program!, url, { more: "default_pool_size = 1" });
    const { code, stdout } = await runCommand(through, "doctor", "--json");
    t.is(code, 0);
    t.like(rowsOf(stdout), [{ id: "transaction-pooler", severity: "info" }]);
    const pool = quietPool(through);
    t.teardown(() => pool.end());
    const { rows } = await pool.query("select current_setting('default_transaction_read_only') as read_only");
    t.is(rows[0].read_only, "off");
  },
);
