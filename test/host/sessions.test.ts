// Databases, roles and connections with settings of their own.
import test, { type ExecutionContext } from "ava";
import { Logger, runOnce, runTaskList, WorkerPreset } from "graphile-worker";
import pg from "pg";
import type { HostConnections } from "../../src/db/connection-settings.ts";
import { connected, looking, openPool } from "../../src/db/looking.ts";
import { withOwnClient } from "../../src/db/own-connection.ts";
import { makeOwnPool } from "../../src/db/own-pool.ts";
import { makePatience } from "../../src/db/patience.ts";
import {
  addPolicyJob,
  concurrency,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  runTickLoop,
  wrapTaskList,
} from "../../src/index.ts";
import { quietPool, type TestDatabase, testDatabase } from "../helpers/database.ts";
import { roles } from "../helpers/roles.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { goTheWholeWay } from "../helpers/whole-way.ts";

type Settings = Readonly<Record<string, string>>;

/** A database whose sessions begin with these settings. */
async function databaseWith(
  t: { teardown(drop: () => Promise<void>): void },
  settings: Settings,
): Promise<TestDatabase> {
  const database = await testDatabase(t);
  const name = new URL(database.url).pathname.slice(1);
  for (const [setting, value] of Object.entries(settings))
    await database.pool.query(`alter database ${name} set ${setting} = ${pg.escapeLiteral(value)}`);
  // connections from before have the old ones
  await database.pool.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and pid <> pg_backend_pid()",
    [name],
  );
  const pool = quietPool(database.url);
  t.teardown(() => pool.end());
  return { ...database, pool };
}

for (const level of ["repeatable read", "serializable"]) {
  test(`a worker runs where transactions are ${level} by default`, async (t) => {
    const database = await databaseWith(t, { default_transaction_isolation: level });
    const runs = await goTheWholeWay(t, database);
    t.true(runs.every(({ lagMs, payload }) => lagMs !== null || payload.key === "native"));
  });
}

for (const settings of [
  { DateStyle: "German" },
  { DateStyle: "SQL, DMY" },
  { DateStyle: "Postgres, MDY", TimeZone: "America/St_Johns" },
  { IntervalStyle: "sql_standard", extra_float_digits: "0", bytea_output: "escape" },
  { TimeZone: "Asia/Kathmandu", IntervalStyle: "postgres_verbose", extra_float_digits: "-15" },
  {
    plan_cache_mode: "force_custom_plan",
    enable_nestloop: "off",
    jit: "on",
    idle_in_transaction_session_timeout: "9s",
  },
] as Settings[]) {
  const what = Object.entries(settings).map(([setting, value]) => `${setting} ${value}`);
  test(`a worker runs where sessions have ${what.join(", ")}`, async (t) => {
    const runs = await goTheWholeWay(t, await databaseWith(t, settings));
    const isReadable = (settings.DateStyle ?? "ISO") === "ISO";
    for (const { admittedAt, lagMs, payload, attempt } of runs) {
      if (payload.key === "native") continue;
      t.not(admittedAt, null, `${payload.key} ${attempt}`); // its flag tells
      t.is(lagMs !== null, isReadable, `${payload.key} ${attempt}`);
    }
  });
}

const policy = definePolicy("p", { partitionBy: "key", gates: [concurrency({ max: 1 })] });
const SERIALIZABLE = { default_transaction_isolation: "serializable" };

test("a connection string's options do not keep utils, one-shot workers, wrapped tasks and loops from working", async (t) => {
  const { url } = await testDatabase(t);
  const at = new URL(url);
  at.searchParams.set("options", "-c default_transaction_isolation=serializable");
  const connectionString = at.href;
  const pool = quietPool(connectionString);
  t.teardown(() => pool.end());
  const { rows } = await pool.query("show transaction_isolation");
  t.is(rows[0].transaction_isolation, "serializable");

  const utils = await makePolicyUtils({ connectionString, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  const staged = await utils.addJob("p", { key: "a" });
  t.is((await utils.tick({ policy: "p" })).admitted, 1);
  t.is((await utils.releaseSlots({ jobId: staged.id })).changed, 1);

  let ran = 0;
  const tasks = { p: async () => void ran++ };
  for (let n = 0; n < 3; n++) await addPolicyJob(pool, policy, { key: "b" });
  const logger = silent;
  const preset = {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [policy] })],
    worker: { connectionString, logger },
  };
  await runOnce({ preset, noHandleSignals: true, taskList: tasks });
  t.is(ran, 4, "the first one, too");

  const stop = new AbortController();
  const loop = runTickLoop({ connectionString, policies: [policy], signal: stop.signal, logger });
  const workers = runTaskList(
    { noHandleSignals: true, logger, pollInterval: 50 },
    wrapTaskList(tasks, { policies: [policy] }),
    pool,
  );
  t.teardown(() => workers.gracefulShutdown());
  for (let n = 0; n < 3; n++) await addPolicyJob(pool, policy, { key: "c" });
  await until("all ran", () => ran === 7);
  stop.abort();
  await loop;
});

test("migrations of several processes at once, where transactions are serializable by default", async (t) => {
  const database = await testDatabase(t, { migrated: false });
  const name = new URL(database.url).pathname.slice(1);
  await database.pool.query(`alter database ${name} set default_transaction_isolation = 'serializable'`);
  const { runMigrations } = await import("graphile-worker");
  await runMigrations({ connectionString: database.url, logger: silent });
  const all = [1, 2, 3].map(() =>
    makePolicyUtils({ connectionString: database.url, policies: [policy], logger: silent }),
  );
  for (const utils of await Promise.all(all)) await utils.release();
  t.pass();
});

test("the SQL function tick in a transaction of the caller's says which isolation level it needs", async (t) => {
  const { pool } = await databaseWith(t, SERIALIZABLE);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  const client = await pool.connect();
  try {
    for (const level of ["repeatable read", "serializable"]) {
      await client.query(`begin isolation level ${level}`);
      await t.throwsAsync(client.query("select dispatch_policy.tick('p')"), {
        message: `dispatch_policy: routing: transaction_isolation is ${level}, expected read committed. Call it in a transaction that was begun with "isolation level read committed"`,
      });
      await client.query("rollback");
    }
    await client.query("begin isolation level read committed");
    await t.notThrowsAsync(client.query("select dispatch_policy.tick('p')"));
    await client.query("commit");
  } finally {
    client.release();
  }
});

test("a connection is asked once which level it has, and takes no transaction where that is the usual one", async (t) => {
  const { url } = await testDatabase(t);
  const pool = quietPool(url, { max: 1 });
  t.teardown(() => pool.end());
  const asked: string[] = [];
  pool.on("connect", (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    Object.assign(client, {
      query: (...args: unknown[]) => {
        asked.push(String(args[0]));
        return query(...args);
      },
    });
  });
  const utils = await makePolicyUtils({
    pgPool: pool,
    policies: [policy],
    logger: new Logger(() => () => {}),
  });
  t.teardown(() => utils.release());
  for (let n = 0; n < 5; n++) await utils.tick({ policy: "p" });
  await utils.pause({ policy: "p" });
  t.is(asked.filter((text) => text.includes("default_transaction_isolation")).length, 1);
  asked.length = 0;
  await utils.tick({ policy: "p" });
  t.is(asked.length, 2, asked.join("\n"));
});

/** What a role may set, and what an own connection has all the same. */
const HOSTILE: Readonly<Record<string, readonly [set: string, has: string]>> = {
  default_transaction_isolation: ["serializable", "read committed"],
  default_transaction_read_only: ["on", "off"],
  statement_timeout: ["20s", "0"],
  lock_timeout: ["20s", "0"],
  idle_in_transaction_session_timeout: ["20s", "0"],
  idle_session_timeout: ["20s", "0"],
  search_path: ["elsewhere, public", "pg_catalog, pg_temp"],
  DateStyle: ["German", "ISO, MDY"],
  IntervalStyle: ["sql_standard", "postgres"],
  extra_float_digits: ["-15", "1"],
  bytea_output: ["escape", "hex"],
  jit: ["on", "off"],
  plan_cache_mode: ["force_custom_plan", "auto"],
  join_collapse_limit: ["1", "8"],
  enable_indexscan: ["off", "on"],
  enable_nestloop: ["off", "on"],
};

/** A role with all of these settings. */
async function hostileRole(t: ExecutionContext) {
  const database = await testDatabase(t);
  const role = roles(t, database, ["app_hostile"]).nameOf("app_hostile");
  await database.pool.query(`create role ${role} login superuser`);
  for (const [name, [value]] of Object.entries(HOSTILE))
    await database.pool.query(
      `alter role ${role} set ${name} = ${name === "search_path" ? value : pg.escapeLiteral(value)}`,
    );
  const at = new URL(database.url);
  at.username = role;
  const pool = quietPool(at.href);
  t.teardown(() => pool.end());
  return { ...database, url: at.href, pool };
}

async function settingsIn(client: pg.ClientBase): Promise<Record<string, string>> {
  const { rows } = await client.query(
    "select name, setting from pg_catalog.pg_settings where name = any($1)",
    [Object.keys(HOSTILE)],
  );
  return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]));
}

const WANTED = Object.fromEntries(Object.entries(HOSTILE).map(([name, [, has]]) => [name, has]));

test("each connection of this package's own has its settings, whatever the role sets", async (t) => {
  const { url, pool } = await hostileRole(t);
  const host: HostConnections = { withPgClient: async () => t.fail() as never, pgPool: pool };
  const own = makeOwnPool({ ...host, max: 1, patience: makePatience(10_000, 10_000) });
  t.teardown(own.close);
  const limited = { ...WANTED, statement_timeout: "8000", lock_timeout: "8000" };
  t.deepEqual(await own.run(settingsIn), limited, "for ticks, releases, sweeps and heartbeats");
  t.deepEqual(await withOwnClient(host, settingsIn), WANTED, "for listening");
  t.deepEqual(await connected(url, (withPgClient) => withPgClient(settingsIn)), WANTED, "for commands");
  t.deepEqual(
    await looking(url, (withPgClient) => withPgClient(settingsIn)),
    { ...WANTED, default_transaction_read_only: "on" },
    "for looks",
  );
  const pages = openPool(url);
  t.teardown(() => pages.end());
  const client = await pages.connect();
  t.deepEqual(await settingsIn(client), WANTED, "for pages");
  client.release();
});
