import { answersAsPg } from "../db/answers.ts";
import type { Queryable } from "../index.ts";

/** What a database or a transaction of Drizzle has, with any of its PostgreSQL drivers. */
export interface DrizzleLike<Statement> {
  execute(statement: Statement): PromiseLike<unknown>;
}

/** Drizzle's `sql`. */
export interface DrizzleSql<Statement> {
  raw(text: string): Statement;
  param(value: unknown): unknown;
  join(chunks: unknown[]): Statement;
}

/**
 * A client for {@link addPolicyJob} and {@link addPolicyJobs} from a Drizzle transaction.
 *
 * The job belongs to that transaction. From a database that is no transaction, each call has a transaction of its own.
 *
 * @param sql Drizzle's own: `import { sql } from "drizzle-orm"`
 * @example
 * await db.transaction(async (tx) => {
 *   await addPolicyJob(fromDrizzle(tx, sql), fetchEndpoint, { endpointId: "ep1", accountId: "acme" });
 * });
 */
export function fromDrizzle<Statement>(db: DrizzleLike<Statement>, sql: DrizzleSql<Statement>): Queryable {
  return answersAsPg({
    async query(text, values = []) {
      try {
        const result = (await db.execute(statementOf(sql, text, values))) as Row[] | { rows: Row[] };
        return { rows: Array.isArray(result) ? result : result.rows }; // postgres.js returns the rows themselves
      } catch (error) {
        throw databaseErrorOf(error);
      }
    },
  });
}

type Row = Record<string, unknown>;

/** A parameter, or something quoted that may look like one. */
const PARAMETER = /"[^"]*"|'[^']*'|\$(?<place>\d+)/g;

/** Drizzle counts parameters itself, so each stands between two pieces of the text. */
function statementOf<Statement>(sql: DrizzleSql<Statement>, text: string, values: unknown[]): Statement {
  const chunks: unknown[] = [];
  let end = 0;
  for (const { 0: found, index, groups } of text.matchAll(PARAMETER)) {
    if (groups?.place === undefined) continue;
    chunks.push(sql.raw(text.slice(end, index)), sql.param(values[Number(groups.place) - 1]));
    end = index + found.length;
  }
  return sql.join([...chunks, sql.raw(text.slice(end))]);
}

/** Drizzle wraps the driver's error. Its message has the whole statement and all values. */
function databaseErrorOf(error: unknown): unknown {
  const { cause } = (error ?? {}) as { cause?: unknown };
  return cause instanceof Error && "code" in cause ? cause : error;
}
