import type { OperateContext } from "./call.ts";
import { type Answer, ask } from "./explain.ts";

/**
 * The partitions of the jobs that have been due for longest, each explained if something holds it back. To explain one takes
 * some milliseconds: of twice as many, no more than needed are.
 */
export async function longestWaiting(context: OperateContext, most: number): Promise<readonly Answer[]> {
  const { withPgClient, engine } = context;
  const found = await withPgClient((client) => engine.longestWaiting(client, 2 * most));
  const answers: Answer[] = [];
  for (const { policy, partition } of found) {
    if (answers.length === most) break;
    const answer = await ask(context, { policy, partition });
    if (answer.reason !== null) answers.push(answer);
  }
  return answers.toSorted((one, other) => dueAt(one) - dueAt(other));
}

function dueAt({ runAt }: Answer): number {
  return runAt?.getTime() ?? Number.POSITIVE_INFINITY;
}
