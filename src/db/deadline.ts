import type { WithPgClient } from "graphile-worker";
import type { Engine, Queryable } from "./engine.ts";

/** A tick, a flush and each step of a sweep take milliseconds, and their locks time out after seconds. */
const DEADLINE_MS = 30_000;

/** Gives repeated work a deadline of 30 s, because it must not hang for ever. `via` has the connection that cancels it. */
export function inTime(
  engine: Engine,
  withPgClient: WithPgClient,
  via: (cancel: (client: Queryable) => Promise<unknown>) => Promise<unknown> = withPgClient,
): WithPgClient {
  return withDeadline(withPgClient, DEADLINE_MS, (pid) => via((client) => engine.cancel(client, pid)));
}

/**
 * Like `withPgClient`, but it fails after `ms`, whether it waits for a client of the pool, for a lock or for the network.
 * `cancel` gets the process id of the backend that runs a statement then. A client that comes too late goes back unused.
 */
export function withDeadline(
  withPgClient: WithPgClient,
  ms: number,
  cancel: (pid: number) => Promise<unknown>,
): WithPgClient {
  return <T>(callback: Parameters<typeof withPgClient<T>>[0]) => {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let pid: number | null | undefined;
    let over = false;
    const timer = setTimeout(() => {
      over = true;
      reject(new Error(`no answer from the database within ${ms} ms`));
      if (typeof pid === "number") cancel(pid).catch(() => {}); // if this fails, the statement's own timeouts end it
    }, ms);
    withPgClient<T>(async (client) => {
      if (over)
        throw new Error(`no connection within ${ms} ms: the call has failed already, and runs nothing`);
      ({ processID: pid } = client as { processID?: number | null });
      return callback(client);
    })
      .then(resolve, reject)
      .finally(() => clearTimeout(timer));
    return promise;
  };
}
