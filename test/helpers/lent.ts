// Databases that the tests of a file pass on to one another, with sessions that know the engine's functions already.
import type { ExecutionContext } from "ava";
import pg from "pg";
import { quietPool, type TestDatabase, testDatabase } from "./database.ts";
import { nameOf } from "./table.ts";
import { until } from "./until.ts";

export interface LentDatabase {
  readonly url: string;
  readonly pool: pg.Pool;
  /** A pool of as many connections for this caller alone. It goes back with the database. */
  connections(max: number): pg.Pool;
  /** A connection beside the pools. It goes back with the database. */
  session(): Promise<pg.Client>;
  /** Gives a session back before the test ends. What it has open is rolled back. */
  giveBack(session: pg.Client): Promise<void>;
}

/** What a database needs of a test. */
type Borrower = Pick<ExecutionContext, "teardown" | "passed">;

/**
 * A database that looks new, for this test alone. To make and drop one takes 25 ms of a processor. Each session then compiles
 * and plans the engine's functions when it first calls them, which takes 70 ms. So the next test of the file gets the database
 * and its sessions, without the rows.
 *
 * If a test failed, changed the schema or its statistics, or left a connection open, its database is dropped.
 */
export async function lentDatabase(t: Borrower): Promise<LentDatabase> {
  await itsTurn(t);
  const place = free.pop() ?? (await makePlace());
  t.teardown(async () => {
    const failure = await place.unseenFailure();
    await takeBack(place, t.passed && failure === undefined);
    if (failure !== undefined) throw new Error(`What no assertion sees: ${failure}`);
  });
  const { database, connections, session, giveBack } = place;
  return { url: database.url, pool: connections(10), connections, session, giveBack };
}

/** How many tests of a file have databases at once. If more had, fewer would find one that another test has used. */
const AT_ONCE = 3;

let turnsLeft = AT_ONCE;
const queue: (() => void)[] = [];
const turns = new WeakMap<Borrower, Promise<void>>();

/** One turn is enough for all databases of a test. Tests that waited for a second turn could wait for each other. */
function itsTurn(t: Borrower): Promise<void> {
  const given = turns.get(t);
  if (given) return given;
  const { promise: turn, resolve } = Promise.withResolvers<void>();
  turns.set(t, turn);
  if (turnsLeft === 0) {
    queue.push(resolve);
  } else {
    turnsLeft--;
    resolve();
  }
  t.teardown(async () => {
    await turn;
    const next = queue.shift();
    if (next) next();
    else turnsLeft++;
  });
  return turn;
}

interface Place extends Pick<LentDatabase, "connections" | "session" | "giveBack"> {
  readonly database: TestDatabase;
  unseenFailure(): Promise<string | undefined>;
  /** Resolves to whether it looks new. Rejects if it cannot be made so. */
  renew(): Promise<boolean>;
  drop(): Promise<void>;
}

const free: Place[] = [];

/** The connections of a free database keep no process alive. So this comes when the file has nothing else to do. */
process.on("beforeExit", () => {
  for (const place of free.splice(0)) void place.drop();
});

async function takeBack(place: Place, passed: boolean): Promise<void> {
  // what cannot be made new, for whatever reason, is not passed on
  const looksNew = passed && (await place.renew().catch(() => false));
  if (looksNew) free.push(place);
  else await place.drop();
}

async function makePlace(): Promise<Place> {
  const database = await testDatabase();
  const { url } = database;
  const keeper = await makeKeeper(url);
  const pools = lendPools(url);
  const sessions = lendSessions(url);
  return {
    database,
    connections: pools.lend,
    session: sessions.lend,
    giveBack: sessions.giveBack,
    unseenFailure: keeper.unseenFailure,
    async renew() {
      // sessions first: the others may wait for their locks
      const pids = [...(await sessions.takeBack()), ...(await pools.takeBack())];
      return keeper.renew(pids);
    },
    async drop() {
      const awake = setInterval(() => {}, 60_000); // idle connections would let the process end before they have ended
      await Promise.all([keeper.end(), sessions.end(), pools.end()]);
      await database.drop();
      clearInterval(awake);
    },
  };
}

const TIDY = `rollback; reset session authorization; reset role; reset all; unlisten *;
  select pg_advisory_unlock_all()`;

/** What a client has, and its types lack. */
interface Client {
  readonly processID: number;
  readonly readyForQuery: boolean;
  ref(): void;
  unref(): void;
}

const inFull = (client: pg.ClientBase) => client as unknown as Client;

function lendPools(url: string) {
  const lent: pg.Pool[] = [];
  const kept: pg.Pool[] = [];

  /** Returns the process ids of its backends. A pool gives the connection first that it got back last: it stays the same one. */
  async function tidy(pool: pg.Pool): Promise<number[]> {
    if (pool.idleCount !== pool.totalCount) throw new Error("A connection was not given back");
    const clients = await Promise.all(Array.from({ length: pool.idleCount }, () => pool.connect()));
    try {
      await Promise.all(clients.map((client) => client.query(TIDY)));
    } finally {
      for (const client of clients.toReversed()) client.release();
    }
    return clients.map((client) => inFull(client).processID);
  }

  return {
    lend(max: number): pg.Pool {
      const place = kept.findIndex(({ options }) => options.max === max);
      const [pool = quietPool(url, { max, allowExitOnIdle: true })] = place < 0 ? [] : kept.splice(place, 1);
      lent.push(pool);
      return pool;
    },
    async takeBack(): Promise<number[]> {
      kept.push(...lent.splice(0).filter(({ ending }) => !ending));
      return (await Promise.all(kept.map(tidy))).flat();
    },
    async end(): Promise<void> {
      const open = [...lent, ...kept].filter(({ ending }) => !ending);
      await Promise.all(open.map((pool) => pool.end()));
    },
  };
}

function lendSessions(url: string) {
  const lent = new Set<pg.Client>();
  const kept = new Set<pg.Client>();

  async function connect(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: url });
    client.on("error", () => {});
    client.once("end", () => {
      lent.delete(client);
      kept.delete(client);
    });
    await client.connect();
    return client;
  }

  async function giveBack(client: pg.Client): Promise<void> {
    if (!lent.delete(client)) return; // it has ended
    if (!inFull(client).readyForQuery) return client.end(); // it may wait for a lock, as long as it likes
    client.removeAllListeners("notification").removeAllListeners("notice");
    await client.query(TIDY);
    inFull(client).unref();
    kept.add(client);
  }

  return {
    async lend(): Promise<pg.Client> {
      const [client = await connect()] = kept;
      kept.delete(client);
      inFull(client).ref();
      lent.add(client);
      return client;
    },
    giveBack,
    /** Returns the process ids of its backends. */
    async takeBack(): Promise<number[]> {
      await Promise.all([...lent].map(giveBack));
      return [...kept].map((client) => inFull(client).processID);
    },
    async end(): Promise<void> {
      await Promise.all([...lent, ...kept].map((client) => client.end()));
    },
  };
}

/** Brings a database back to what it was. No trigger fires on what it deletes. */
async function makeKeeper(url: string) {
  const options = "-c session_replication_role=replica -c lock_timeout=2s";
  const pool = quietPool(url, { max: 1, options, allowExitOnIdle: true });
  renewal ??= readRenewal(pool);
  const { deletions, print, printOfNew } = await renewal;

  async function isAlone(pids: readonly number[]): Promise<boolean> {
    const others = `select from pg_stat_activity where datname = current_database()
      and backend_type = 'client backend' and pid <> all($1::int[] || pg_backend_pid())`;
    return (await pool.query(others, [pids])).rowCount === 0;
  }

  return {
    /** An error in the small way of admission makes nothing wrong, only slow: so tests look for it. And for what never is. */
    async unseenFailure(): Promise<string | undefined> {
      const { rows } = await pool
        .query<{ failure: string }>(
          `select r.reason as failure from (
             select left_to_pass from ${nameOf("activity")} union all select left_to_pass from ${nameOf("minutes")}
           ) a cross join jsonb_object_keys(a.left_to_pass) r (reason)
           where r.reason like 'failed: %'
           union all
           select format('limiter %s has %s jobs in flight', l.id, l.in_flight) from ${nameOf("limiters")} l where l.in_flight < 0
           union all
           select format('partition %s: decayed admits %s, waits for limiter %s, due at %s, stopped until %s',
             q.key, q.decayed_admits, q.blocked_on, q.due_at, q.stopped_until)
           from ${nameOf("partitions")} q
           where q.decayed_admits < 0 or q.decayed_admits = 'Infinity'
             or q.blocked_on is not null and (q.due_at = 'infinity' or q.stopped_until > '-infinity')
           limit 1`,
        )
        .catch((error) => {
          // the test has dropped the schema, locked it, or ended the server: anything else would make this look blind
          if (/^(42P01|3F000|55P03|57P0.|08...)$/.test(error.code) || !/^\w{5}$/.test(error.code))
            return { rows: [] };
          throw error;
        });
      return rows[0]?.failure;
    },
    /** Resolves to whether it looks new. `pids`: the backends that may be connected. The others have a moment to leave. */
    async renew(pids: readonly number[]): Promise<boolean> {
      await until("nobody else is connected", () => isAlone(pids), { withinMs: 2000, everyMs: 5 });
      await pool.query({ name: "delete", text: deletions });
      const { rows } = await pool.query({ name: "print", text: print });
      return rows[0].print === printOfNew;
    },
    end: () => pool.end(),
  };
}

interface Renewal {
  /** Deletes all rows that a new database lacks, and starts all sequences again. */
  readonly deletions: string;
  /** Asks for a text that differs if the schema, its statistics or the rows of a new database have changed. */
  readonly print: string;
  readonly printOfNew: string;
}

/** The same for all databases of a file, because they are clones of one template. */
let renewal: Promise<Renewal> | undefined;

const OURS = "array['graphile_worker', 'dispatch_policy', 'dispatch_policy_internal']::regnamespace[]::oid[]";

async function readRenewal(pool: pg.Pool): Promise<Renewal> {
  const { rows: tables } = await pool.query<{ name: string }>(
    `select oid::regclass::text as name from pg_class where relkind = 'r' and relnamespace = any(${OURS})`,
  );
  const { rows: sequences } = await pool.query<{ restart: string }>(
    `select format('setval(%L, %s, false)', oid::regclass, seqstart) as restart
     from pg_class join pg_sequence on seqrelid = oid where relnamespace = any(${OURS})`,
  );
  const deletions: string[] = [];
  const prints = [...CATALOGS.map(printOf), PRINT_OF_DATABASE];
  for (const { name } of tables) {
    const { rows } = await pool.query<{ row: string }>(`select r::text as row from ${name} r`);
    const kept = rows.map(({ row }) => `and r::text <> ${pg.escapeLiteral(row)}`);
    deletions.push(`d${deletions.length} as (delete from ${name} r where true ${kept.join(" ")})`);
    if (rows.length > 0) prints.push(`(select string_agg(r::text, ',' order by r::text) from ${name} r)`);
  }
  const print = `select concat_ws(' | ', ${prints.join(", ")}) as print`;
  return {
    deletions: `with ${deletions.join(", ")} select ${sequences.map(({ restart }) => restart).join(", ")}`,
    print,
    printOfNew: (await pool.query(print)).rows[0].print,
  };
}

/** The first oid that is not PostgreSQL's own. */
const FIRST_OID = 16_384;

/** Where DDL leaves its traces, each with what its rows must be. */
const CATALOGS: readonly (readonly [catalog: string, which: string])[] = [
  ["pg_class", `oid >= ${FIRST_OID}`],
  ["pg_constraint", `oid >= ${FIRST_OID}`],
  ["pg_namespace", `oid >= ${FIRST_OID}`],
  ["pg_proc", `oid >= ${FIRST_OID}`],
  ["pg_trigger", `oid >= ${FIRST_OID}`],
  ["pg_type", `oid >= ${FIRST_OID}`],
  ["pg_attribute", `attrelid >= ${FIRST_OID}`],
  ["pg_statistic", `starelid >= ${FIRST_OID}`],
  ["pg_attrdef", "true"],
  ["pg_default_acl", "true"],
  ["pg_event_trigger", "true"],
  ["pg_extension", "true"],
  ["pg_policy", "true"],
  ["pg_statistic_ext", "true"],
  ["pg_db_role_setting", "setdatabase = (select oid from pg_database where datname = current_database())"],
];

const PRINT_OF_DATABASE = `(select concat_ws(' ', datdba, datacl, datallowconn, datconnlimit) from pg_database
  where datname = current_database())`;

/** Whoever changes a row gives it another xmin. ANALYZE and VACUUM change some numbers in place. */
function printOf([catalog, which]: (typeof CATALOGS)[number]): string {
  const inPlace = catalog === "pg_class" ? ", sum(reltuples), sum(relpages)" : "";
  return `(select concat_ws(' ', count(*), sum(xmin::text::bigint)${inPlace}) from ${catalog} where ${which})`;
}
