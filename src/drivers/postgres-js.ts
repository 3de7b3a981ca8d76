import { answersAsPg } from "../db/answers.ts";
import type { Queryable } from "../index.ts";

/** What the `sql` of postgres.js has, and the one that `sql.begin` passes on. */
export interface PostgresJsLike {
  // biome-ignore lint/suspicious/noExplicitAny: its own type lists the types of values that the application added
  unsafe(text: string, values?: any[]): PromiseLike<readonly object[]>;
}

/**
 * A client for {@link addPolicyJob} and {@link addPolicyJobs} from a transaction of postgres.js.
 *
 * The job belongs to that transaction. From an `sql` that is no transaction, each call has a transaction of its own.
 *
 * @example
 * await sql.begin(async (tx) => {
 *   await addPolicyJob(fromPostgresJs(tx), fetchEndpoint, { endpointId: "ep1", accountId: "acme" });
 * });
 */
export function fromPostgresJs(sql: PostgresJsLike): Queryable {
  return answersAsPg({
    query: async (text, values = []) => ({ rows: [...(await sql.unsafe(text, values))] }),
  });
}
