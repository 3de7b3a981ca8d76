import type { WithPgClient } from "graphile-worker";
import type { Engine } from "./engine.ts";
import { codeOf } from "./outage.ts";
import { makePatience, type Patience } from "./patience.ts";
import { QUERY_CANCELED } from "./sqlstates.ts";

/** A tick, a flush and each step of a sweep take milliseconds, and their locks time out after seconds. */
const DEADLINE_MS = 30_000;
/** On a slow machine, and for a flood, they may take longer. */
const LONGEST_DEADLINE_MS = 300_000;

/** The patience with ticks, flushes and steps of sweeps. */
export function workPatience(): Patience {
  return makePatience(DEADLINE_MS, LONGEST_DEADLINE_MS);
}

/** Gives repeated work in the host's pool a deadline, because it must not hang for ever. */
export function inTime(engine: Engine, withPgClient: WithPgClient): WithPgClient {
  const cancel = (pid: number) => withPgClient((client) => engine.cancel(client, pid));
  return withDeadline(withPgClient, workPatience(), cancel);
}

/**
 * Like `withPgClient`, but it fails when its time is over, whether it waits for a client of the pool, for a lock or for the
 * network. `cancel` gets the process id of the backend that runs a statement then. A client that does not answer after that
 * either ends, so that nobody gets it again. One that comes too late goes back unused.
 */
export function withDeadline(
  withPgClient: WithPgClient,
  patience: Patience,
  cancel: (pid: number) => Promise<unknown>,
): WithPgClient {
  return async <T>(callback: Parameters<typeof withPgClient<T>>[0]) => {
    let used: Used | null = null;
    try {
      return await within(patience, (isOver) =>
        withPgClient<T>(async (client) => {
          if (isOver()) throw new NoAnswerError("it has failed already, and runs nothing");
          used = client as object;
          return callback(client).finally(() => {
            used = null;
          });
        }),
      );
    } catch (error) {
      if (error instanceof NoAnswerError) endIfStuck(() => used, cancel);
      throw error;
    }
  };
}

/** A statement that is cancelled ends within this. */
const CANCELLED_WITHIN_MS = 5000;

interface Used {
  readonly processID?: number | null;
  end?(): Promise<void>;
}

/** Cancels what runs in a client. If that does not end it, the network is gone, and the client ends. */
function endIfStuck(used: () => Used | null, cancel: (pid: number) => Promise<unknown>): void {
  const client = used();
  // if this fails, the statement's own timeouts end it
  if (typeof client?.processID === "number") cancel(client.processID).catch(() => {});
  setTimeout(() => {
    if (client !== null && used() === client) void client.end?.().catch(() => {});
  }, CANCELLED_WITHIN_MS).unref();
}

/** The database did not answer in time: a statement may still run there. */
export class NoAnswerError extends Error {}

/**
 * Fails when its time is over, though the work goes on. `isOver` says so then.
 *
 * @throws {NoAnswerError} then
 */
export async function within<T>(patience: Patience, work: (isOver: () => boolean) => Promise<T>): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const { ms } = patience;
  const began = performance.now();
  let over = false;
  // Where the processors are busy, an answer may lie there unread when the timer fires: Node reads it before an immediate
  const timer = setTimeout(() => setImmediate(giveUp), ms);
  function giveUp(): void {
    over = true;
    reject(new NoAnswerError(`no answer from the database within ${ms} ms`));
  }
  work(() => over).then(resolve, reject);
  try {
    const result = await promise;
    patience.enough(performance.now() - began);
    return result;
  } catch (error) {
    if (over || isStatementTimeout(error)) patience.tooShort();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** PostgreSQL has ended the statement, because its `statement_timeout` was over. */
function isStatementTimeout(error: unknown): boolean {
  return codeOf(error) === QUERY_CANCELED && / statement timeout$/.test((error as Error).message);
}
