import type { PoolClient } from "pg";

export type { PoolClient } from "pg";

const ANSWERS_WITHIN_MS = 5000;

/**
 * Asks a connection that only listens for an answer. A host that is gone says nothing, so it would listen there for ever: without an
 * answer the connection ends, and who has it hears of an error.
 *
 * @param statement one that changes nothing
 */
export async function checkAnswers(client: PoolClient, statement: string): Promise<void> {
  const timer = setTimeout(() => {
    client.end().catch(() => {});
    client.emit(
      "error",
      new Error(`the connection that listens has not answered within ${ANSWERS_WITHIN_MS} ms`),
    );
  }, ANSWERS_WITHIN_MS);
  try {
    await client.query(statement);
  } catch {
    // who has the connection has heard of it
  } finally {
    clearTimeout(timer);
  }
}
