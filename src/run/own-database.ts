import type { EnhancedWithPgClient, JobHelpers, WithPgClient } from "graphile-worker";
import { codeOf, isOutage } from "../db/outage.ts";

/** What Graphile Worker's database, or the way to it, has failed to do for tasks. */
const failures = new WeakSet<object>();

/** pg's own errors have neither a code nor a class. */
const CONNECTION_LOST =
  /^(Connection terminated|Client has encountered a connection error|Query read timeout)/;

/** Whether a task threw what Graphile Worker's database had failed to do for it: a connection was cut, or a time was over. */
export function isOfOwnDatabase(thrown: unknown): boolean {
  return typeof thrown === "object" && thrown !== null && failures.has(thrown);
}

type Helpers = Pick<JobHelpers, "withPgClient" | "query">;
type PoolClient = Parameters<Parameters<WithPgClient>[0]>[0];

/** The same helpers, which remember such failures. */
export function remembering({ withPgClient }: Helpers): Helpers {
  const { withRetries } = withPgClient as Partial<EnhancedWithPgClient>;
  const own = Object.assign(
    rememberingOf(withPgClient),
    withPgClient, // Graphile Worker has properties on it
    withRetries && { withRetries: rememberingOf(withRetries) },
  );
  return { withPgClient: own, query: (text, values) => own((client) => client.query(text, values)) };
}

/**
 * What the callback throws may be a partner's, however it looks. So only what the client's queries threw is judged, and what
 * the callback did not throw: there was no client for it.
 */
function rememberingOf(withPgClient: WithPgClient): WithPgClient {
  return (callback) => {
    let thrown: unknown = failures; // nothing yet
    const called = async (client: PoolClient) => {
      try {
        return await callback(rememberingClient(client));
      } catch (error) {
        thrown = error;
        throw error;
      }
    };
    return withPgClient(called).catch((error) => {
      // `withRetries` wraps what is no Error
      if (error instanceof Error && error !== thrown && error.cause !== thrown) failures.add(error);
      throw error;
    });
  };
}

const clients = new WeakMap<PoolClient, PoolClient>();

/** One for each client: much is remembered of a client by its identity. */
function rememberingClient(client: PoolClient): PoolClient {
  const known = clients.get(client);
  if (known) return known;
  const own = new Proxy(client, {
    get: (_, name) => (name === "query" ? rememberingQuery(client) : Reflect.get(client, name)),
  });
  clients.set(client, own);
  return own;
}

/** Of the query function that the client has now: one that replaces it may call this one. */
function rememberingQuery(client: PoolClient): PoolClient["query"] {
  const query: (...args: unknown[]) => unknown = client.query;
  return (...args: unknown[]) => {
    const answer = query.apply(client, args.map(rememberingListener));
    const rethrow = (error: unknown) => Promise.reject(remembered(error));
    return (answer instanceof Promise ? answer.catch(rethrow) : answer) as never;
  };
}

type Listener = (error: unknown, ...rest: unknown[]) => unknown;

/** pg tells a failure to a callback, or to the query itself, such as a cursor. Other arguments are left alone. */
function rememberingListener(argument: unknown): unknown {
  if (typeof argument === "function") return rememberingCallback(argument as Listener);
  const { submit, handleError } = (argument ?? {}) as { submit?: unknown; handleError?: Listener };
  if (typeof submit === "function" && handleError)
    Object.assign(argument as object, { handleError: rememberingCallback(handleError) });
  return argument;
}

function rememberingCallback(listener: Listener): Listener {
  return function (this: unknown, error, ...rest) {
    return listener.call(this, remembered(error), ...rest);
  };
}

function remembered(error: unknown): unknown {
  if (error instanceof Error && isLost(error)) failures.add(error);
  return error;
}

function isLost(error: Error): boolean {
  return codeOf(error) === null ? CONNECTION_LOST.test(error.message) || "syscall" in error : isOutage(error);
}
