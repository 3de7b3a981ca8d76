import type { Outcome } from "./wrap-task.ts";

/**
 * The parts of a batch, which may go on after its task has returned: Graphile Worker waits for each, and retries those that
 * failed. Null: it is no batch.
 */
export function batchParts(payload: unknown, outcome: Outcome): readonly unknown[] | null {
  const results = "error" in outcome ? undefined : outcome.result;
  return Array.isArray(payload) && Array.isArray(results) && payload.length === results.length
    ? results
    : null;
}
