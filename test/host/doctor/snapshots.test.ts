// Who keeps PostgreSQL from removing dead rows: transactions, prepared ones, slots and standbys, and what a leader says of them.
import { randomBytes } from "node:crypto";
import test, { type ExecutionContext } from "ava";
import { Logger } from "graphile-worker";
import pg from "pg";
import { startPostgres } from "../../../scripts/postgres/start.ts";
import { makeEngine } from "../../../src/db/engine.ts";
import { makeOldSnapshots } from "../../../src/pool/old-snapshots.ts";
import { quietPool, type TestDatabase } from "../../helpers/database.ts";
import { patient } from "../../helpers/doctor.ts";
import { greet } from "../../helpers/policies.ts";
import { until } from "../../helpers/until.ts";
import { startWorker } from "../../helpers/worker.ts";

/** Its own, because a prepared transaction needs a setting, and because others' transactions would be found as well. */
const server = await startPostgres({ own: true, settings: { max_prepared_transactions: "10" } });
test.after.always(() => server.stop());

const NOW = { oldSnapshotMs: 0 };

async function databaseOn(
  t: ExecutionContext,
  { owner, template = "template0" }: { owner?: string; template?: string } = {},
): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString("hex")}`;
  const admin = quietPool(server.url, { max: 1 });
  await admin.query(`create database ${name} template ${template} ${owner ? `owner ${owner}` : ""}`);
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  const asSuperuser = quietPool(url.href);
  if (owner) url.username = owner;
  const pool = owner ? quietPool(url.href) : asSuperuser;
  const drop = async () => {
    await Promise.all([...new Set([pool, asSuperuser])].map((one) => one.end()));
    await admin.query(`drop database if exists ${name} with (force)`);
    await admin.end();
  };
  t.teardown(drop);
  return { url: url.href, pool, drop };
}

/** A session that the test leaves open, as the server's superuser. */
async function sessionOf({ url }: { url: string }, t: ExecutionContext, user = "postgres") {
  const at = new URL(url);
  at.username = user;
  const client = new pg.Client({ connectionString: at.href, application_name: "psql" });
  client.on("error", () => {}); // the test ends some
  await client.connect();
  t.teardown(() => client.end());
  const { rows } = await client.query("select pg_backend_pid() as pid");
  return { client, pid: rows[0].pid as number };
}

/** So many transactions that write. */
const write = ({ pool }: Pick<TestDatabase, "pool">, count: number) =>
  pool.query(`do $$ begin for i in 1..${count} loop perform pg_current_xact_id(); commit; end loop; end $$`);

const READS = "begin isolation level repeatable read; select 1";
const WRITES = "begin; select pg_current_xact_id()";

/** In psql each line is a statement of its own. */
async function follow({ pool }: Pick<TestDatabase, "pool">, mend: string): Promise<void> {
  for (const line of mend.split("\n").filter((one) => !one.startsWith("--"))) await pool.query(line);
}

test.serial("a transaction that keeps dead rows is found, and what is said ends it", async (t) => {
  const it = await patient(t, [greet], await databaseOn(t));
  const { client, pid } = await sessionOf(it, t);
  await client.query(READS);
  t.deepEqual(await it.findings("old-snapshot", NOW), [], "nobody has written since");
  await write(it, 1000);
  t.deepEqual(await it.findings("old-snapshot"), [], "it is not old");
  const [found, ...others] = await it.findings("old-snapshot", NOW);
  t.deepEqual(others, []);
  t.is(found?.severity, "warning");
  t.regex(
    found!.sentence,
    new RegExp(
      `^Session ${pid} of postgres \\(psql, idle in transaction\\) has had a transaction open for \\d+ s\\. ` +
        "So PostgreSQL keeps all rows that died in the last 1,0\\d\\d transactions, and passes get slower\\.$",
    ),
  );
  t.true(found!.mend.endsWith(`\nselect pg_terminate_backend(${pid});`));
  await follow(it, found!.mend);
  await until("it has ended", async () => (await it.findings("old-snapshot", NOW)).length === 0);
});

test.serial("a writer is found in each database, a reader only in its own", async (t) => {
  const it = await patient(t, [greet], await databaseOn(t));
  const other = await databaseOn(t);
  const { client, pid } = await sessionOf(other, t);
  await client.query(READS);
  await write(it, 10);
  t.deepEqual(await it.findings("old-snapshot", NOW), []);
  await client.query("commit");
  await client.query(WRITES);
  await write(it, 10);
  const [found] = await it.findings("old-snapshot", NOW);
  const name = new URL(other.url).pathname.slice(1);
  t.true(
    found?.sentence.startsWith(
      `Session ${pid} of postgres (psql, idle in transaction) in database "${name}" has had a transaction`,
    ),
    found?.sentence,
  );
});

/** How many pages a table of one row has, after 500 updates of it. Each page is cleaned by the next update, unless rows stay. */
async function pagesOfUpdates({ pool }: TestDatabase): Promise<number> {
  await pool.query(`drop table if exists t; create table t (n int) with (autovacuum_enabled = off);
    insert into t values (0)`);
  await pool.query(
    "do $$ begin for i in 1..500 loop update public.t set n = n + 1; commit; end loop; end $$",
  );
  const { rows } = await pool.query("select pg_relation_size('t')::int / 8192 as pages");
  return rows[0].pages;
}

test.serial(
  "PostgreSQL itself keeps rows for those that are found, and for no reader elsewhere",
  async (t) => {
    const [it, other] = [await databaseOn(t), await databaseOn(t)];
    const [here, elsewhere] = [await sessionOf(it, t), await sessionOf(other, t)];
    t.is(await pagesOfUpdates(it), 1);
    for (const [client, statement, keeps] of [
      [here.client, READS, true],
      [here.client, WRITES, true],
      [elsewhere.client, READS, false],
      [elsewhere.client, WRITES, true],
    ] as const) {
      await client.query(statement);
      t.is((await pagesOfUpdates(it)) > 1, keeps, statement);
      await client.query("rollback");
    }
  },
);

test.serial("a prepared transaction is found by its gid, also of another database", async (t) => {
  const it = await patient(t, [greet], await databaseOn(t));
  const other = await databaseOn(t);
  for (const [place, where] of [
    [it, ""],
    [other, ` in database "${new URL(other.url).pathname.slice(1)}"`],
  ] as const) {
    await place.pool.query(`${WRITES}; prepare transaction 'it''s 1'`);
    await write(it, 10);
    const [found] = await it.findings("old-snapshot", NOW);
    t.true(
      found?.sentence.startsWith(
        `Prepared transaction 'it''s 1' of postgres${where} has waited for its commit for `,
      ),
      found?.sentence,
    );
    await follow(place, found!.mend);
    t.deepEqual(await it.findings("old-snapshot", NOW), []);
  }
});

/** Does what a standby with hot_standby_feedback does: says that a query there needs all rows since now. Returns its end. */
async function standby(
  t: ExecutionContext,
  { pool, url }: Pick<TestDatabase, "pool" | "url">,
  slot?: string,
) {
  const { rows } = await pool.query(
    "select pg_current_xact_id()::text as xid, pg_current_wal_flush_lsn()::text as lsn",
  );
  const client = new pg.Client({
    ...{ connectionString: url, application_name: "replica1" },
    ...({ replication: "true" } as object),
  });
  client.on("error", () => {}); // the test ends it
  await client.connect();
  t.teardown(() => client.end());
  const { connection } = client as unknown as {
    connection: NodeJS.EventEmitter & { query(text: string): void; sendCopyFromChunk(chunk: Buffer): void };
  };
  const starts = new Promise((resolve) => connection.once("replicationStart", resolve));
  connection.query(`START_REPLICATION ${slot ? `SLOT ${slot}` : ""} PHYSICAL ${rows[0].lsn}`);
  await starts;
  const xid = BigInt(rows[0].xid);
  const feedback = Buffer.alloc(25);
  feedback.write("h");
  feedback.writeUInt32BE(Number(xid & 0xffffffffn), 9);
  feedback.writeUInt32BE(Number(xid >> 32n), 13);
  connection.sendCopyFromChunk(feedback);
  return () => client.end();
}

test.serial("a standby and a slot are found by their distance, because nobody knows their age", async (t) => {
  const it = await patient(t, [greet], await databaseOn(t));
  const findings = () => it.findings("old-snapshot", { oldSnapshotTransactions: 1000 });
  const found = () => until("it is found", async () => (await findings())[0]);
  const end = await standby(t, it);
  await until("its xmin is known", async () => {
    const { rowCount } = await it.pool.query(
      "select from pg_stat_activity where backend_type = 'walsender' and backend_xmin is not null",
    );
    return rowCount === 1;
  });
  t.deepEqual(await findings(), [], "it is near");
  await write(it, 1100);
  const alone = await found();
  t.regex(alone.sentence, /^A query on standby 'replica1' \(session \d+\) still reads old rows\. So /);
  t.regex(alone.mend, /^-- on that standby; or switch its hot_standby_feedback off\n/);
  await end();
  await until("it has gone", async () => (await findings()).length === 0);

  await it.pool.query("select pg_create_physical_replication_slot('replica_1', true)");
  const endOther = await standby(t, it, "replica_1");
  await until("its xmin is known", async () => {
    const { rowCount } = await it.pool.query("select from pg_replication_slots where xmin is not null");
    return rowCount === 1;
  });
  await write(it, 1100);
  const active = await found();
  t.regex(active.sentence, /^A query on the standby of replication slot 'replica_1' still reads old rows\./);
  t.is(active.mend, alone.mend);
  await endOther();
  const left = await until("nobody reads it", async () =>
    (await findings()).find(({ sentence }) => sentence.includes("nobody")),
  );
  t.regex(
    left.sentence,
    /^Replication slot 'replica_1' has an old xmin, and nobody reads the slot\. So PostgreSQL keeps all rows that died in the last 1,\d+ transactions,/,
  );
  await follow(it, left.mend);
  t.deepEqual(await findings(), []);
});

test.serial("a role that may not see other roles' sessions goes by their distance", async (t) => {
  const admin = quietPool(server.url, { max: 1 });
  t.teardown(() => admin.end());
  const owner = `app_${randomBytes(4).toString("hex")}`;
  await admin.query(`create role ${owner} login`);
  const it = await patient(t, [greet], await databaseOn(t, { owner }));
  const { client, pid } = await sessionOf(it, t);
  await client.query(READS);
  await write(it, 1000);
  t.deepEqual(
    (await it.utils.doctor({ thresholds: NOW })).filter(({ id }) => id !== "no-crontab-tick"),
    [],
    "nothing wrong is said, and no check fails",
  );
  const [found] = await it.findings("old-snapshot", { oldSnapshotTransactions: 1000 });
  t.regex(
    found!.sentence,
    new RegExp(
      `^Session ${pid} of postgres \\(psql\\) has a transaction open, and this role may not see since when\\. So PostgreSQL keeps all`,
    ),
  );
  t.true(found!.mend.includes("pg_read_all_stats"));
  await admin.query(`grant pg_read_all_stats to ${owner}`);
  const [seen] = await it.findings("old-snapshot", NOW);
  t.regex(seen!.sentence, /\(psql, idle in transaction\) has had a transaction open for \d+ s\./);
});

test.serial("a leader warns once of each, and of none that keeps few rows", async (t) => {
  const it = await patient(t, [greet], await databaseOn(t));
  const said: string[] = [];
  const logger = new Logger(() => (level, message) => void said.push(`${level} ${message}`));
  let now = 0;
  const snapshots = makeOldSnapshots(logger, { olderThanMs: 0, now: () => now });
  const look = () => snapshots.look(it.utils.withPgClient, makeEngine("dispatch_policy"));
  const { client, pid } = await sessionOf(it, t);
  await client.query(READS);
  await write(it, 9000);
  await look();
  t.deepEqual(said, [], "few rows have died");
  await write(it, 2000);
  await look();
  now = 3_599_999;
  await look();
  t.is(said.length, 1);
  t.regex(
    said[0]!,
    new RegExp(
      `^warning Passes get slower\\. Session ${pid} of .* transactions\\. The command doctor says how`,
    ),
  );
  now += 3_599_999;
  await look();
  t.is(said.length, 1, "it is still the same");
  await client.query("commit");
  await look();
  await client.query(READS);
  await write(it, 11_000);
  await look();
  t.is(said.length, 2, "another came");
  now += 3_600_000;
  await look();
  t.is(said.length, 3, "nobody has seen it for an hour");
});

test.serial("a worker's sweep looks for them", async (t) => {
  const database = await databaseOn(t);
  await database.pool.query("select pg_create_physical_replication_slot('left_behind', true)");
  t.teardown(async () => {
    const admin = quietPool(server.url, { max: 1 });
    await admin.query("select pg_drop_replication_slot('left_behind')");
    await admin.end();
  });
  const end = await standby(t, database, "left_behind");
  await until("its xmin is known", async () => {
    const { rowCount } = await database.pool.query("select from pg_replication_slots where xmin is not null");
    return rowCount === 1;
  });
  await end();
  await write(database, 100_000);
  const it = await startWorker(t, {
    database,
    policies: [greet],
    tasks: { greet: () => {} },
    preset: { sweepInterval: "100 ms" },
  });
  // a leader sweeps while jobs wait
  await it.utils.addJob("greet", { name: "Ana" }, { runAt: new Date(Date.now() + 3_600_000) });
  const warning = await until("it warns", () =>
    it.log.find(({ message }) =>
      message.startsWith("Passes get slower. Replication slot 'left_behind' has an old xmin"),
    ),
  );
  t.is(warning.level, "warning");
  t.like(warning.meta, { snapshot: { kind: "slot", name: "left_behind", seconds: null } });
});
