import type { OperateContext } from "./call.ts";
import { type Answer, ask } from "./explain.ts";

/**
 * Of the partitions with the most or the oldest staged jobs those whose next job is due for longest, each explained. The
 * others count no less, but to explain one takes some milliseconds.
 */
export async function longestWaiting(context: OperateContext, most: number): Promise<readonly Answer[]> {
  const { withPgClient, engine } = context;
  const found = await withPgClient((client) => engine.longestWaiting(client, most));
  const answers: Answer[] = [];
  for (const { policy, partition } of found.slice(0, 2 * most))
    answers.push(await ask(context, { policy, partition }));
  return answers
    .filter(({ reason }) => reason !== null)
    .toSorted((one, other) => dueAt(one) - dueAt(other))
    .slice(0, most);
}

function dueAt({ runAt }: Answer): number {
  return runAt?.getTime() ?? Number.POSITIVE_INFINITY;
}
