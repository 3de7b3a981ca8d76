import type pg from "pg";
import { type HostConnections, settingsOf } from "./connection-settings.ts";
import { NoAnswerError, withDeadline, within } from "./deadline.ts";
import { limitStatements } from "./isolation.ts";
import { codeOf } from "./outage.ts";
import { prepareSession } from "./own-session.ts";
import { parameter } from "./parameters.ts";
import type { Patience } from "./patience.ts";
import { quietPool } from "./quiet-pool.ts";
import { OLD_SERVER } from "./sqlstates.ts";

export interface OwnPoolOptions extends HostConnections {
  /** The most connections. */
  readonly max: number;
  /** How many callbacks go to the host's pool while all connections stay in use. Further ones wait for a connection. Default: none. */
  readonly beside?: number;
  /** How long a callback may take, with connecting. It may wait as long before, if `beside` is given and all are in use. */
  readonly patience: Patience;
  /** Ends a statement in the host's pool, by the process id of its backend. */
  readonly cancel?: (pid: number) => Promise<unknown>;
  /** Called when the host's pool is used instead: once for each time that no connection can be made. */
  readonly onFallback?: (error: Error) => void;
}

/** A statement, connecting and a wait for a lock end in the server and in pg before they are given up here. */
const SERVERS_PART = 0.8;

/** An own connection, or one of the host's pool. */
type Place = "own" | "beside";

interface Waiter {
  /** It has waited for long enough to go to the host's pool as well. */
  isBeside: boolean;
  end(place: Place): void;
}

/** For so long all own connections must be in use before the host's pool is. */
const BESIDE_AFTER_MS = 50;

/** How long to wait until a backend that is told to end has ended. */
const ENDS_WITHIN_MS = 500;

/**
 * A few connections beside the host's pool. Statements get through there when the host's pool is exhausted. And each backend
 * plans large statements for itself, which takes ten times as long as running them: in the host's pool nearly every statement
 * would meet another backend.
 *
 * Connections are made when they are needed. While none can be made, the host's pool is used, by as many callbacks at once. With
 * `beside` it is also used while all of them are in use.
 *
 * However slow the database is, there are not more of them. The server ends a statement before it is given up here. One that
 * was given up all the same, because the server was silent, is ended before the next begins.
 */
export function makeOwnPool({ max, beside = 0, patience, cancel, onFallback, ...host }: OwnPoolOptions) {
  let pool: pg.Pool | null | undefined;
  let closed = false;
  let fellBack = false;
  const free = { own: max, beside };
  const waiting: Waiter[] = []; // who came first is first
  let borrowed = 0;
  const backends = makeBackends();

  async function run<T>(callback: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const place = await takePlace();
    const done = place === "own" ? runHere(callback) : borrow(callback);
    return done.finally(() => leavePlace(place));
  }

  /**
   * Mostly an own connection is free again in milliseconds, and the host's pool may be exhausted. After a moment, whichever is
   * free first is taken: who waited for one of them alone would wait for somebody who waits for a lock.
   */
  async function takePlace(): Promise<Place> {
    if (beside === 0 || (free.own > 0 && waiting.length === 0)) {
      free.own--; // without places beside, pg lets callbacks wait
      return "own";
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        isBeside: false,
        end: (place) => {
          leaveLine();
          resolve(place);
        },
      };
      const leaveLine = () => {
        clearTimeout(moment);
        clearTimeout(isOver);
        waiting.splice(waiting.indexOf(waiter), 1);
      };
      const moment = setTimeout(() => {
        waiter.isBeside = true;
        if (free.beside > 0) {
          free.beside--;
          waiter.end("beside");
        }
      }, BESIDE_AFTER_MS);
      const isOver = setTimeout(() => {
        leaveLine();
        reject(new Error("no connection is free"));
      }, patience.ms);
      waiting.push(waiter);
    });
  }

  function leavePlace(place: Place): void {
    const next = waiting.find(({ isBeside }) => place === "own" || isBeside);
    if (next) next.end(place);
    else free[place]++;
  }

  async function runHere<T>(callback: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    let client: pg.PoolClient | null | undefined;
    try {
      const done = await within(patience, async (isOver) => {
        const one = closed ? null : await connected();
        if (!one) return null;
        if (isOver()) return one.release();
        client = one;
        await backends.prepare(client, Math.ceil(patience.ms * SERVERS_PART));
        return { result: await callback(client) };
      });
      client?.release();
      if (done) return done.result;
    } catch (error) {
      if (client) leave(client, error);
      throw error;
    }
    return borrow(callback);
  }

  /** Null while no connection can be made. */
  async function connected(): Promise<pg.PoolClient | null> {
    try {
      if (pool === undefined) {
        const settings = await settingsOf(host);
        pool ??= settings && makePool({ ...settings, max });
      }
      if (!pool) return null;
      pool.options.connectionTimeoutMillis = Math.ceil(patience.ms * SERVERS_PART);
      const client = await pool.connect();
      fellBack = false;
      return client;
    } catch (error) {
      // the host's pool would be filled with what waits for the same
      if (pool && pool.totalCount >= max) throw new Error("no connection is free", { cause: error });
      if (!fellBack) onFallback?.(error as Error);
      fellBack = true;
      return null;
    }
  }

  /** After a failure the connection is kept, unless something may still run in it, or it leads to an old primary. */
  function leave(client: pg.PoolClient, error: unknown): void {
    if (error instanceof NoAnswerError) backends.giveUp(client);
    client.release(error instanceof NoAnswerError || codeOf(error) === OLD_SERVER);
  }

  async function borrow<T>(callback: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    if (borrowed >= Math.max(max, beside))
      throw new Error("what was given up in the host's pool has not ended");
    const borrowing = <R>(use: (client: pg.PoolClient) => Promise<R>): Promise<R> => {
      borrowed++;
      return host.withPgClient(use).finally(() => borrowed--);
    };
    return withDeadline(
      borrowing as never,
      patience,
      cancel ?? (async () => {}),
    )(callback as never) as Promise<T>;
  }

  return {
    run,
    /** Whether the backend with this process id serves one of these connections. */
    owns: (pid: number): boolean => backends.has(pid),
    close(): void {
      if (closed) return;
      closed = true;
      pool?.end().catch(() => {}); // whoever closes it waits for nothing
    },
  };
}

export type OwnPool = ReturnType<typeof makeOwnPool>;

/** A pool that keeps its connections. */
function makePool(settings: pg.PoolConfig): pg.Pool {
  return quietPool({
    ...settings,
    min: 0,
    query_timeout: 0, // pg would lend the connection again while the statement still waits there
    idleTimeoutMillis: 0,
    maxUses: Number.POSITIVE_INFINITY,
    keepAlive: true,
  });
}

/** A backend, as nobody else has it again. Null: behind a pooler, whose backends serve others as well. */
type Backend = { readonly pid: number; readonly started: string } | null;

/** The backends of a pool's connections. */
function makeBackends() {
  const known = new Map<object, { backend: Backend; limitMs: number }>();
  const givenUp = new Set<NonNullable<Backend>>();

  /** A statement that was given up may hold locks for which the next one would wait: it must end first. */
  async function endGivenUp(client: pg.PoolClient): Promise<void> {
    for (const one of givenUp) {
      const { rows } = await client.query(
        `select pg_catalog.pg_terminate_backend(pid, ${ENDS_WITHIN_MS}) as ended from pg_catalog.pg_stat_activity ` +
          `where pid = ${parameter(1, "int")} and backend_start = ${parameter(2, "time")} and state = 'active'`,
        [one.pid, one.started],
      );
      if (rows[0]?.ended === false)
        throw new Error(`a statement that was given up still runs in the database, in process ${one.pid}`);
      givenUp.delete(one);
    }
  }

  return {
    has: (pid: number): boolean => [...known.values()].some(({ backend }) => backend?.pid === pid),
    /** Before a connection is used. A statement, or a wait for a lock, may take this long from now on. */
    async prepare(client: pg.PoolClient, limitMs: number): Promise<void> {
      let it = known.get(client);
      if (it?.limitMs !== limitMs) {
        const backend = it ? it.backend : await backendOf(client);
        if (!it) {
          await prepareSession(client, backend !== null);
          client.once("end", () => known.delete(client));
        }
        await limitStatements(client, limitMs);
        it = { backend, limitMs };
        known.set(client, it);
      }
      await endGivenUp(client);
    },
    /** Something may still run in it. */
    giveUp(client: pg.PoolClient): void {
      const backend = known.get(client)?.backend;
      if (backend) givenUp.add(backend);
    },
  };
}

async function backendOf(client: pg.PoolClient): Promise<Backend> {
  const { rows } = await client.query(
    "select pid, backend_start::pg_catalog.text as started from pg_catalog.pg_stat_activity where pid = pg_catalog.pg_backend_pid()",
  );
  const [backend] = rows as NonNullable<Backend>[];
  const { processID } = client as { processID?: number | null };
  return backend?.pid === processID ? (backend ?? null) : null;
}
