import pg from "pg";
import { type HostConnections, settingsOf } from "./connection-settings.ts";
import type { Queryable } from "./engine.ts";
import { readCommittedByDefault } from "./isolation.ts";

export interface OwnConnectionOptions extends HostConnections {
  /** How long connecting and each statement may take. */
  readonly timeoutMs: number;
  /** Called when the host's pool is used instead: once for each time that the connection is lost. */
  readonly onFallback: (error: Error) => void;
}

/**
 * One connection beside the host's pool, for statements that must get through when the pool is exhausted. It is made when
 * first used, and again after any failure. It runs one callback at a time. Those that come meanwhile wait for their turn,
 * because pg deprecates a statement that is sent while another one runs.
 */
export function makeOwnConnection({ timeoutMs, onFallback, ...host }: OwnConnectionOptions) {
  let settings: pg.ClientConfig | null | undefined;
  let client: pg.Client | undefined;
  let reported = false;
  let closed = false;
  let last: Promise<unknown> = Promise.resolve();

  async function run<T>(callback: (client: Queryable) => Promise<T>): Promise<T> {
    const turn = last.then(() => runOwn(callback));
    last = turn.catch(() => {}); // whoever began it hears of its failure
    const done = await turn;
    return done ? done.result : host.withPgClient(callback); // not in its turn: the host's pool may keep it waiting
  }

  /** Undefined while there is no connection. */
  async function runOwn<T>(callback: (client: Queryable) => Promise<T>): Promise<{ result: T } | undefined> {
    const own = closed ? undefined : await connected();
    if (!own) return undefined;
    try {
      return { result: await callback(own) };
    } catch (error) {
      discard(own); // a statement that timed out may still run in it
      throw error;
    }
  }

  /** Undefined while it cannot be made. */
  async function connected(): Promise<pg.Client | undefined> {
    if (client) return client;
    settings ??= await settingsOf(host);
    if (!settings) return undefined;
    const made = new pg.Client({ ...settings, ...timeouts(timeoutMs) });
    made.on("error", () => discard(made));
    try {
      await made.connect();
      await readCommittedByDefault(made);
      reported = false;
      client = made;
      return made;
    } catch (error) {
      discard(made);
      if (!reported) onFallback(error as Error);
      reported = true;
      return undefined;
    }
  }

  function discard(lost: pg.Client): void {
    if (client === lost) client = undefined;
    lost.end().catch(() => {}); // it is lost already
  }

  return {
    run,
    close(): void {
      closed = true;
      if (client) discard(client);
    },
  };
}

export type OwnConnection = ReturnType<typeof makeOwnConnection>;

/**
 * Runs a callback with a connection beside the host's pool, for work that keeps one for long: a pool of one would have
 * none left. If the host does not show where to connect to, the connection is one of the pool's.
 */
export async function withOwnClient<T>(
  host: HostConnections,
  callback: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const settings = await settingsOf(host);
  if (!settings) return host.withPgClient((client) => callback(client as unknown as pg.Client));
  const client = new pg.Client({ ...settings, keepAlive: true });
  client.on("error", () => {});
  try {
    await client.connect();
    return await callback(client);
  } finally {
    await client.end().catch(() => {}); // the callback has its answer, and the server ends a lost connection
  }
}

function timeouts(ms: number): pg.ClientConfig {
  return { connectionTimeoutMillis: ms, query_timeout: ms, keepAlive: true };
}
