import type { Task } from "graphile-worker";
import { isStorableText, storableText } from "../checks/options.ts";
import { errorText } from "../error-text.ts";
import { batchParts } from "./batch-parts.ts";

/**
 * Runs a task so that Graphile Worker can record its failure. PostgreSQL refuses an error's text with NUL or half a surrogate
 * pair, and Graphile Worker would end its worker, or keep the job locked.
 */
export async function recordably(
  payload: unknown,
  run: () => ReturnType<Task>,
): Promise<Awaited<ReturnType<Task>>> {
  try {
    const result = await run();
    const parts = batchParts(payload, { result });
    return parts ? parts.map((part) => Promise.resolve(part).catch(throwRecordable)) : result;
  } catch (error) {
    throwRecordable(error);
  }
}

function throwRecordable(error: unknown): never {
  const text = errorText(error);
  if (isStorableText(text)) throw error;
  const recordable = new Error(storableText(text), { cause: error });
  if (error instanceof Error && error.stack !== undefined) recordable.stack = error.stack;
  throw recordable;
}
