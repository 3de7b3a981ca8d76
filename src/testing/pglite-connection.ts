import { Duplex } from "node:stream";
import { makeBackend } from "./pglite-backend.ts";
import type { Session } from "./pglite-session.ts";
import { messagesOf, typeOf, WELCOME } from "./wire.ts";

/** The messages after which a client waits for an answer: a query, a sync, a flush. */
const ENDS_BATCH = new Set(["Q", "S", "H"]);
const TERMINATE = "X";

/**
 * A connection to a PGlite: a stream that pg takes for a socket, by its public option `stream`. So pg itself turns values
 * into parameters and rows into values. A pool over `pglite.query` would need less code. But PGlite writes an array for a
 * jsonb parameter as JSON, and pg as a PostgreSQL array. So a test would pass on what fails on a server. Its rows differ
 * as well (int8, intervals). An ORM asks pg for more (`rowMode`, `types`, several results). PGlite's own
 * `createPgConfig` uses pg in the same way, but for one connection only.
 *
 * It tells no process id, because all connections have the same. A worker's tick loop skips notifications from its own
 * connections, and would take every one for its own.
 */
export function makeConnection(session: Session): Duplex {
  const backend = makeBackend(session, (bytes) => void stream.push(bytes));
  let isStarted = false;
  /** Resolves once everything that was sent so far has been answered. */
  let answered: Promise<void> = Promise.resolve();
  const afterwards = (step: () => Promise<void>) => {
    answered = answered.then(step);
    return answered;
  };

  async function answer(messages: readonly Buffer[]): Promise<void> {
    try {
      stream.push(await backend.answer(messages, () => stream.destroyed));
    } catch (error) {
      stream.destroy(error as Error);
    }
  }

  const take = makeBatches((batch) => void afterwards(() => answer(batch)));
  const stream = new Duplex({
    read() {},
    write(bytes: Buffer, _encoding, done) {
      try {
        if (isStarted) messagesOf(bytes).forEach(take);
        else stream.push(WELCOME);
        isStarted = true;
        done();
      } catch (error) {
        done(error as Error);
      }
    },
    final(done) {
      afterwards(backend.leave).then(() => {
        stream.push(null);
        done();
      });
    },
    destroy(error, done) {
      afterwards(backend.leave).then(() => done(error));
    },
  });
  const itself = () => stream;
  const connect = () => {
    backend.join().then(
      () => stream.emit("connect"),
      (error: Error) => stream.destroy(error),
    );
    return stream;
  };
  return Object.assign(stream, {
    connect,
    setNoDelay: itself,
    setKeepAlive: itself,
    ref: itself,
    unref: itself,
  });
}

/** Makes a function that takes messages. It passes them on as soon as the client waits for an answer. */
function makeBatches(passOn: (batch: readonly Buffer[]) => void): (one: Buffer) => void {
  let batch: Buffer[] = [];
  return (one) => {
    if (typeOf(one) === TERMINATE) return;
    batch.push(one);
    if (!ENDS_BATCH.has(typeOf(one))) return;
    passOn(batch);
    batch = [];
  };
}
