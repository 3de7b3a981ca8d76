import { setTimeout as delay } from "node:timers/promises";
import type { Logger, WithPgClient } from "graphile-worker";
import { isFor, startShardLoop } from "../admit/tick-loop.ts";
import { check, type Rule } from "../checks/options.ts";
import { inTime } from "../db/deadline.ts";
import { makeEngine } from "../db/engine.ts";
import { withOwnClient } from "../db/own-connections.ts";
import { noEvents } from "../events.ts";
import { checkPolicy } from "../operate/call.ts";
import { CHANNEL, type Notification, readNotification } from "../pool/notification.ts";
import { makePolicyUtils, type PolicyUtilsOptions, utilsSettings } from "./policy-utils.ts";

const LISTEN_AGAIN_MS = 1000;

export interface RunTickLoopOptions extends PolicyUtilsOptions {
  /** Default: every policy in the database when the loop starts. */
  policy?: string | undefined;
  /** Default: every shard. */
  shard?: string | undefined;
  /** Ends the loop; the promise then resolves. */
  signal: AbortSignal;
}

const anAbortSignal: Rule = {
  expects: "an AbortSignal",
  accepts: (value) => value instanceof AbortSignal,
};

/**
 * The tick loop on its own, in a process that runs no jobs. Ticks wherever there is something to do until the signal
 * aborts; other loops at work on the same policies do no harm. Keeps one connection beside its pool, for notifications.
 *
 * @throws {ArgumentError} without an AbortSignal
 * @throws {UnknownPolicyError} for a policy nobody declared, listing the known ones
 * @example await runTickLoop({ connectionString, policies: [fetchEndpoint], signal: controller.signal });
 */
export async function runTickLoop({ policy, shard, signal, ...options }: RunTickLoopOptions): Promise<void> {
  check("runTickLoop: signal", signal, anAbortSignal);
  const settings = utilsSettings(options);
  const utils = await makePolicyUtils(options);
  try {
    const { withPgClient, logger } = utils;
    const engine = makeEngine(settings.schema);
    const context = {
      ...settings,
      withPgClient: inTime(engine, withPgClient),
      engine,
      events: noEvents,
      logger,
    };
    await withPgClient((client) => checkPolicy(client, engine, policy));
    const names = policy === undefined ? await withPgClient(engine.policyNames) : [policy];
    const loops = names.map((name) => startShardLoop(context, { policy: name, shard: shard ?? null }));
    const hear = (said: Partial<Notification>) => {
      for (const loop of loops) if (isFor(loop.lead, said.policy, said.shard)) loop.nudge();
    };
    const onNotification = ({ channel, payload }: { channel: string; payload?: string | undefined }) => {
      const said = channel === CHANNEL ? readNotification(payload, settings.schema) : undefined;
      if (said) hear(said);
    };
    try {
      while (!signal.aborted)
        await listenUntilLost(
          { withPgClient, pgPool: options.pgPool },
          onNotification,
          () => hear({}),
          signal,
          logger,
        );
    } finally {
      await Promise.all(loops.map((loop) => loop.stop()));
    }
  } finally {
    await utils.release();
  }
}

/** Passes notifications on until the signal aborts or the connection is lost; ticks go on meanwhile, by their heartbeat. */
async function listenUntilLost(
  connecting: { withPgClient: WithPgClient; pgPool: unknown },
  onNotification: (said: { channel: string; payload?: string | undefined }) => void,
  onListening: () => void,
  signal: AbortSignal,
  logger: Logger,
): Promise<void> {
  try {
    await withOwnClient(connecting, async (client) => {
      const over = Promise.withResolvers<void>();
      const abort = () => over.resolve();
      client.on("notification", onNotification).once("error", over.reject).once("end", over.resolve);
      signal.addEventListener("abort", abort);
      try {
        await client.query("listen dispatch_policy");
        onListening(); // what was said while nobody listened
        if (!signal.aborted) await over.promise;
        await client.query("unlisten dispatch_policy");
      } finally {
        client.off("notification", onNotification).off("error", over.reject).off("end", over.resolve);
        signal.removeEventListener("abort", abort);
      }
    });
  } catch (error) {
    if (signal.aborted) return;
    logger.warn(`dispatch-policy: listening failed, trying again: ${(error as Error).message}`, { error });
    await delay(LISTEN_AGAIN_MS, undefined, { signal }).catch(() => {});
  }
}
