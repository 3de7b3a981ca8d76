import { show } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import type { Queryable } from "./statements.ts";

/** Clients that have answered as pg's do, and their `query` functions: all clients of pg have one, and a proxy many. */
const known = new WeakSet<object>();

/** Remembers that a client answers as pg's do. */
export function answersAsPg<Client extends Queryable>(client: Client): Client {
  known.add(client).add(client.query);
  return client;
}

export function hasAnswered(client: Queryable): boolean {
  return known.has(client) || known.has(client.query);
}

/**
 * The rows of a statement.
 *
 * @throws {ArgumentError} if the client answers without `{ rows }`, or with rows that are no objects
 */
// biome-ignore lint/suspicious/noExplicitAny: rows are whatever the statement returns
export async function rowsOf(client: Queryable, text: string, values: unknown[]): Promise<any[]> {
  const answer: unknown = await client.query(text, values);
  const rows = (answer as { rows?: unknown } | null | undefined)?.rows;
  if (!Array.isArray(rows) || Array.isArray(rows[0]))
    throw new ArgumentError(
      `the client's query must resolve to { rows }, an array of objects as pg's, got ${answer === undefined ? "nothing" : show(rows ?? answer)}`,
    );
  answersAsPg(client);
  return rows;
}
