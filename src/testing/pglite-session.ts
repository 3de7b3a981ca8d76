import { type Answer, query, readAnswer } from "./wire.ts";

/** The parts of a PGlite that {@link pglitePool} uses. Every `PGlite` of `@electric-sql/pglite` 0.5 has them. */
export interface PGliteLike {
  /** Resolves once it has started. */
  readonly waitReady: Promise<void>;
  /** Whether it was closed. */
  readonly closed: boolean;
  /** Runs messages of PostgreSQL's wire protocol, and returns the server's. */
  execProtocol(
    message: Uint8Array,
    options: { throwOnError: boolean },
  ): Promise<{ readonly data: Uint8Array }>;
  /** Runs a function while no other statement runs. */
  runExclusive<T>(run: () => Promise<T>): Promise<T>;
  /**
   * Runs a function while no other transaction runs. PGlite's own statements and transactions wait for it as well, and
   * nothing else keeps them out of an open one. Its documentation does not name it, so {@link pglitePool} checks for it.
   */
  _runExclusiveTransaction<T>(run: () => Promise<T>): Promise<T>;
  /** Calls back for every notification, whoever sent it. */
  onNotification(callback: (channel: string, payload: string) => void): () => void;
}

/** A connection, as the session sees it. */
export interface Listener {
  /** The channels that it listens to. */
  readonly channels: Set<string>;
  notify(channel: string, payload: string): void;
}

/** How long a connection waits while another one is in a transaction. Two that wait for each other would do so for ever. */
const TURN_MS = 10_000;

/** Another connection is in a transaction for too long. */
export class SessionBusy extends Error {}

/**
 * The one session of a PGlite, which all connections share in turns. A second `begin` would silently join the first
 * transaction. So whoever begins one has the session until the transaction ends.
 */
export function makeSession(db: PGliteLike, turnMs = TURN_MS) {
  const listeners = new Set<Listener>();
  let unsubscribe: (() => void) | undefined;

  async function run(messages: readonly Buffer[]): Promise<Answer> {
    if (db.closed) throw new Error("This PGlite is closed: end the pool before you close it");
    const bytes = Buffer.concat(messages);
    const { data } = await db.runExclusive(() => db.execProtocol(bytes, { throwOnError: false }));
    return readAnswer(data);
  }

  return {
    ready: (): Promise<void> => db.waitReady,
    /** Runs messages. Only whoever has the turn may. */
    run,
    /**
     * Resolves once the caller has the session, to a function that gives it away.
     *
     * @throws {SessionBusy} if it takes too long
     */
    turn(): Promise<() => void> {
      const { promise, resolve, reject } = Promise.withResolvers<() => void>();
      let isLate = false;
      const timer = setTimeout(() => {
        isLate = true;
        reject(new SessionBusy());
      }, turnMs);
      db._runExclusiveTransaction(async () => {
        clearTimeout(timer);
        if (!isLate) await new Promise<void>((end) => resolve(end));
      }).catch(reject);
      return promise;
    },
    join(listener: Listener): void {
      listeners.add(listener);
      unsubscribe ??= db.onNotification((channel, payload) => {
        for (const one of listeners) if (one.channels.has(channel)) one.notify(channel, payload);
      });
    },
    leave(listener: Listener): void {
      listeners.delete(listener);
      if (listeners.size > 0) return;
      unsubscribe?.();
      unsubscribe = undefined;
    },
    /** An `unlisten` of one connection ends it for the session. This listens again to what the others listen to. */
    async listenAgain(): Promise<void> {
      const channels = new Set([...listeners].flatMap((one) => [...one.channels]));
      const statements = [...channels].map((channel) => `listen "${channel.replaceAll('"', '""')}"`);
      if (statements.length > 0) await run([query(statements.join(";"))]);
    },
  };
}

export type Session = ReturnType<typeof makeSession>;
