import type { HostConnections } from "../db/connection-settings.ts";
import { withOwnClient } from "../db/own-connection.ts";
import type { Logger } from "../log.ts";
import { CHANNEL, type Notification, readNotification } from "./notification.ts";
import { sleep } from "./sleeper.ts";
import { isFor, type Lead, reportFailed, startShardLoop, type TickLoopContext } from "./tick-loop.ts";

const LISTEN_AGAIN_MS = 1000;

export interface RunLoopsContext extends TickLoopContext {
  /** This package's schema: notifications of another one are skipped. */
  readonly schema: string;
}

/**
 * Runs tick loops until the signal aborts, and wakes them by notifications. It listens with a connection of its own,
 * beside the pool of `host` if that shows where to connect to.
 */
export async function runLoops(
  context: RunLoopsContext,
  leads: readonly Lead[],
  host: HostConnections,
  signal: AbortSignal,
): Promise<void> {
  const loops = leads.map((lead) => startShardLoop(context, lead));
  const nudge = (said: Partial<Notification>) => {
    for (const loop of loops) if (isFor(loop.lead, said.policy, said.shard)) loop.nudge();
  };
  const onNotification = ({ channel, payload }: { channel: string; payload?: string | undefined }) => {
    const said = channel === CHANNEL ? readNotification(payload, context.schema) : undefined;
    if (said?.failed !== undefined) reportFailed(context, loops, said.policy, said.failed);
    if (said) nudge(said);
  };
  try {
    while (!signal.aborted)
      await listenUntilLost(host, onNotification, () => nudge({}), signal, context.logger);
  } finally {
    await Promise.all(loops.map((loop) => loop.stop()));
  }
}

/** Passes notifications on until the signal aborts or the connection is lost. Loops also tick by their own heartbeat. */
async function listenUntilLost(
  host: HostConnections,
  onNotification: (said: { channel: string; payload?: string | undefined }) => void,
  onListening: () => void,
  signal: AbortSignal,
  logger: Logger,
): Promise<void> {
  try {
    await withOwnClient(host, async (client) => {
      const over = Promise.withResolvers<void>();
      const abort = () => over.resolve();
      client.on("notification", onNotification).once("error", over.reject).once("end", over.resolve);
      signal.addEventListener("abort", abort);
      try {
        await client.query("listen dispatch_policy");
        onListening(); // notifications may have been missed before
        if (!signal.aborted) await over.promise;
        await client.query("unlisten dispatch_policy");
      } finally {
        client.off("notification", onNotification).off("error", over.reject).off("end", over.resolve);
        signal.removeEventListener("abort", abort);
      }
    });
  } catch (error) {
    if (signal.aborted) return;
    logger.warn(`Listening failed, trying again: ${(error as Error).message}`, { error });
    await sleep(LISTEN_AGAIN_MS, signal);
  }
}
