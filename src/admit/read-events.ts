import type { WithPgClient } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import { errorText } from "../error-text.ts";

interface EventContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
}

/** One call reads a thousand events. If jobs end faster, the rest is left to the next who reads. */
const MOST_CALLS = 100;

/**
 * Reads what happened to the jobs of all policies, in the database, for their history, job groups and keys. What was dropped is
 * left to the policy's tick loop, which tells of it.
 *
 * @throws {AggregateError} with what failed, after the other policies were read
 */
export async function readEvents({ withPgClient, engine }: EventContext): Promise<void> {
  const errors: unknown[] = [];
  const readAll = async (policy: string) => {
    for (let call = 0; call < MOST_CALLS; call++)
      if (!(await withPgClient((client) => engine.consumeEvents(client, policy, false))).more) return;
  };
  for (const policy of await withPgClient(engine.policiesWithEvents))
    await readAll(policy).catch((error) => errors.push(error));
  if (errors.length > 0) throw new AggregateError(errors, errors.map((error) => errorText(error)).join("; "));
}
