import { errorText } from "../error-text.ts";
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

/** The errors of a batch's parts, with Graphile Worker's message. */
export class BatchError extends AggregateError {
  constructor(errors: readonly unknown[]) {
    super(errors, `Batch failures:\n${errors.map(errorText).join("\n")}`);
  }
}

/** Waits for the parts of a batch. Undefined: none has failed. `onFailure` gets each error at once, and is waited for. */
export async function failureOf(
  parts: readonly unknown[],
  onFailure: (error: unknown) => Promise<void>,
): Promise<BatchError | undefined> {
  const errors: unknown[] = [];
  const ended = async (part: unknown, place: number) => {
    try {
      await part;
    } catch (error) {
      errors[place] = error;
      await onFailure(error);
    }
  };
  await Promise.all(parts.map(ended));
  const failed = Object.values(errors); // without the places of those that succeeded
  return failed.length === 0 ? undefined : new BatchError(failed);
}
