import type { JobHelpers, WithPgClient } from "graphile-worker";
import { codeOf, isOutage } from "../db/outage.ts";

/** What Graphile Worker's database, or the way to it, has failed to do for tasks. */
const failures = new WeakSet<object>();

/** pg's own errors have neither a code nor a class. */
const CONNECTION_LOST =
  /^(Connection terminated|Client has encountered a connection error|timeout exceeded when trying to connect)/;

/** Whether a task threw what Graphile Worker's database had failed to do for it: a connection was cut, or a time was over. */
export function isOfOwnDatabase(thrown: unknown): boolean {
  return typeof thrown === "object" && thrown !== null && failures.has(thrown);
}

type Helpers = Pick<JobHelpers, "withPgClient" | "query">;

/** The same helpers, which remember such failures. */
export function remembering({ withPgClient }: Helpers): Helpers {
  const own = Object.assign(rememberingOf(withPgClient), withPgClient); // Graphile Worker has properties on it
  return { withPgClient: own, query: (text, values) => own((client) => client.query(text, values)) };
}

function rememberingOf(withPgClient: WithPgClient): WithPgClient {
  return (callback) =>
    withPgClient(callback).catch((error) => {
      if (isLost(error)) failures.add(error);
      throw error;
    });
}

function isLost(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return codeOf(error) === null ? CONNECTION_LOST.test(error.message) || "syscall" in error : isOutage(error);
}
