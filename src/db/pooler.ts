import { type HostConnections, settingsOf } from "./connection-settings.ts";
import type { Engine, Queryable } from "./engine.ts";
import { withOwnClient } from "./own-connection.ts";

/** How often two connections ask in turn. A pooler that has few sessions at hand gives one of them away at the first. */
const ROUNDS = 3;

/**
 * Whether a connection goes through a pooler that gives each transaction any session ("transaction mode"). LISTEN has no
 * effect there, and PostgreSQL reports no error.
 *
 * A pooler gives its clients process ids of its own, so one statement clears any other connection. Otherwise two
 * connections ask in turn for their sessions: in transaction mode one gets several, or both get the same.
 */
export async function sharesSessions(engine: Engine, host: HostConnections): Promise<boolean> {
  const isDirect = await host.withPgClient(async (client) => {
    const { processID } = client as { processID?: number | null };
    return typeof processID !== "number" || processID === (await engine.backendPid(client));
  });
  if (isDirect) return false;
  if (!(await settingsOf(host))) return false; // further connections would come from the host's pool, which may be small
  return withOwnClient(host, (first) => withOwnClient(host, (second) => areShared(engine, first, second)));
}

async function areShared(engine: Engine, first: Queryable, second: Queryable): Promise<boolean> {
  const ofFirst = new Set<number>();
  const ofSecond = new Set<number>();
  for (let round = 0; round < ROUNDS; round++) {
    for (const [client, pids] of [
      [first, ofFirst],
      [second, ofSecond],
    ] as const) {
      for (let twice = 0; twice < 2; twice++) pids.add(await engine.backendPid(client));
    }
  }
  return ofFirst.size > 1 || ofSecond.size > 1 || [...ofFirst].some((pid) => ofSecond.has(pid));
}
