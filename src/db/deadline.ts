import type { WithPgClient } from "graphile-worker";
import type { Engine, Queryable } from "./engine.ts";

/** A tick, a flush of releases and each step of a sweep take milliseconds; their locks time out after seconds. */
const DEADLINE_MS = 30_000;

/** What repeats itself must not hang for ever: with {@link DEADLINE_MS}, cancelled by way of `via`. */
export function inTime(
  engine: Engine,
  withPgClient: WithPgClient,
  via: (cancel: (client: Queryable) => Promise<unknown>) => Promise<unknown> = withPgClient,
): WithPgClient {
  return withDeadline(withPgClient, DEADLINE_MS, (pid) => via((client) => engine.cancel(client, pid)));
}

/**
 * The same, but fails after `ms`, whether it waits for a client of the pool, for a lock or for the network. What runs
 * then is cancelled by its backend's process id; a client that comes too late goes back unused.
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
      if (typeof pid === "number") cancel(pid).catch(() => {}); // what it waits for has time-outs of its own
    }, ms);
    withPgClient<T>(async (client) => {
      if (over) throw new Error("too late");
      ({ processID: pid } = client as { processID?: number | null });
      return callback(client);
    })
      .then(resolve, reject)
      .finally(() => clearTimeout(timer));
    return promise;
  };
}
