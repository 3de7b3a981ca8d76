import { listensOf } from "./listens.ts";
import { type Session, SessionBusy } from "./pglite-session.ts";
import { failure, notification, query, SYNC, statementOf } from "./wire.ts";

const NOTHING = Buffer.alloc(0);
const BUSY = failure({
  code: "55P03", // lock_not_available
  message: "another connection to this PGlite has been in a transaction for too long",
  hint:
    "A PGlite has one session, so connections wait for the end of each other's transactions. End the transaction " +
    "before you use another connection, or use a PostgreSQL server for this test",
});
/** It would hang the process: a PGlite that waits for the data runs for ever, and takes more and more memory. */
const COPY_IN = /(?:^|;)\s*copy\b[^;]*\bfrom\s+stdin\b/i;
const NO_COPY_IN = failure({
  code: "0A000", // feature_not_supported
  message: "copy ... from stdin does not work through a pool over a PGlite",
  hint: "Insert the rows, or use a PostgreSQL server for this test",
});

export type Backend = ReturnType<typeof makeBackend>;

/** What a server keeps for one connection: its transaction, and the channels that it listens to. */
export function makeBackend(session: Session, push: (bytes: Buffer) => void) {
  const channels = new Set<string>();
  const listener = { channels, notify: (...sent: [string, string]) => push(notification(...sent)) };
  let endTurn: (() => void) | undefined;

  function giveTurn(): void {
    endTurn?.();
    endTurn = undefined;
  }

  return {
    join(): Promise<void> {
      session.join(listener);
      return session.ready();
    },
    /** Runs messages, and keeps the session's turn while a transaction is open. Nothing runs for a client that has gone. */
    async answer(messages: readonly Buffer[], hasGone: () => boolean): Promise<Buffer> {
      if (messages.some((one) => COPY_IN.test(statementOf(one) ?? ""))) return NO_COPY_IN;
      let inTransaction: boolean | undefined = false;
      try {
        endTurn ??= await session.turn();
        if (hasGone()) return NOTHING;
        const answer = await session.run(messages);
        if (followListens(channels, messages)) await session.listenAgain();
        ({ inTransaction } = answer);
        return answer.bytes;
      } catch (error) {
        if (error instanceof SessionBusy) return BUSY;
        throw error;
      } finally {
        if (inTransaction === false) giveTurn();
      }
    },
    /** As a server does if a client has gone: rolls its transaction back. */
    async leave(): Promise<void> {
      session.leave(listener);
      try {
        if (endTurn) await session.run([SYNC, query("rollback")]);
      } catch {
        // the PGlite was closed before
      } finally {
        giveTurn();
      }
    },
  };
}

/** Keeps the channels as the statements among messages change them. Returns whether one was an `unlisten`. */
function followListens(channels: Set<string>, messages: readonly Buffer[]): boolean {
  const listens = messages.flatMap((one) => listensOf(statementOf(one) ?? ""));
  for (const { channel, on } of listens) {
    if (channel === null) channels.clear();
    else if (on) channels.add(channel);
    else channels.delete(channel);
  }
  return listens.some(({ on }) => !on);
}
