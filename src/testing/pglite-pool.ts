import { show } from "../checks/options.ts";
import { makeStreamPool, type Pool } from "../db/stream-pool.ts";
import { ArgumentError } from "../errors.ts";
import { makeConnection } from "./pglite-connection.ts";
import { makeSession, type PGliteLike, type Session } from "./pglite-session.ts";

/** A PGlite has one session, whichever pool uses it. */
const sessions = new WeakMap<PGliteLike, Session>();

/**
 * A pool of pg over a PGlite that you made: PostgreSQL in this process, for tests without a server. Give it to
 * `makePolicyUtils`, to Graphile Worker and to your own code as `pgPool`. Values, types and errors are those of pg.
 *
 * All connections share the PGlite's one session. A transaction has it to itself, and other connections wait for its end.
 * If they wait for more than 10 s, their statements fail with code 55P03. Settings that last longer than a
 * transaction, such as `set search_path`, apply to all connections.
 *
 * `pool.end()` leaves the PGlite open. Tested with `@electric-sql/pglite` 0.5.16.
 *
 * @throws {ArgumentError} if `db` is no PGlite, or one that lacks a method which the pool needs
 * @example
 * const db = await PGlite.create();
 * const pool = pglitePool(db);
 * const utils = await makePolicyUtils({ pgPool: pool, policies: [fetchEndpoint] });
 * await utils.release();
 * await pool.end();
 * await db.close();
 */
export function pglitePool(db: PGliteLike): Pool {
  check(db);
  const session = sessions.get(db) ?? makeSession(db);
  sessions.set(db, session);
  return makeStreamPool(() => makeConnection(session));
}

const METHODS = ["execProtocol", "runExclusive", "onNotification", "_runExclusiveTransaction"] as const;
const UNFIT =
  "so it is something else, or a version that does not fit. Make one with PGlite.create() of @electric-sql/pglite, which " +
  "is tested with 0.5.16";

function check(db: PGliteLike): void {
  const missing = METHODS.find((name) => typeof (db as Partial<PGliteLike> | null)?.[name] !== "function");
  if (missing === undefined) return;
  const isPromise = (db as unknown) instanceof Promise;
  const wayOut = isPromise ? "await it first" : `it has no ${missing}(), ${UNFIT}`;
  throw new ArgumentError(`pglitePool: db must be a PGlite, got ${show(db)}: ${wayOut}`);
}
