import type { Logger, WithPgClient } from "graphile-worker";
import { sleep } from "../admit/sleeper.ts";
import { isFor, startShardLoop } from "../admit/tick-loop.ts";
import { check, type Rule } from "../checks/options.ts";
import { inTime } from "../db/deadline.ts";
import { makeEngine } from "../db/engine.ts";
import { withOwnClient } from "../db/own-connection.ts";
import { safely } from "../events.ts";
import { ours } from "../log.ts";
import { checkPolicy } from "../operate/call.ts";
import { CHANNEL, type Notification, readNotification } from "../pool/notification.ts";
import {
  checkUtilsOptions,
  eventsOf,
  makePolicyUtils,
  type PolicyUtilsOptions,
  utilsSettings,
} from "./policy-utils.ts";

const LISTEN_AGAIN_MS = 1000;

/** The options of `runTickLoop`: those of `makePolicyUtils`, what to tick, and how it ends. */
export interface RunTickLoopOptions extends PolicyUtilsOptions {
  /**
   * The only policy to tick.
   * @default every policy in the database when the loop starts
   */
  policy?: string | undefined;
  /**
   * The only shard to tick.
   * @default every shard
   */
  shard?: string | undefined;
  /** Ends the loop. The promise of `runTickLoop` resolves then. */
  signal: AbortSignal;
}

const anAbortSignal: Rule = {
  expects: "an AbortSignal",
  accepts: (value) => value instanceof AbortSignal,
};

/**
 * Runs tick loops in a process that runs no jobs, until the signal aborts. Other loops for the same policies do no harm.
 * It keeps one connection beside its pool, for notifications.
 *
 * @throws {ArgumentError} without an AbortSignal, or for an unknown option
 * @throws {UnknownPolicyError} for a policy that nobody declared; it lists the known ones
 * @example await runTickLoop({ connectionString, policies: [fetchEndpoint], signal: controller.signal });
 */
export async function runTickLoop({ policy, shard, signal, ...options }: RunTickLoopOptions): Promise<void> {
  check("runTickLoop: signal", signal, anAbortSignal);
  checkUtilsOptions("runTickLoop", options);
  const settings = utilsSettings(options);
  const utils = await makePolicyUtils(options);
  try {
    const { withPgClient } = utils;
    const logger = ours(utils.logger);
    const engine = makeEngine(settings.schema);
    const context = {
      ...settings,
      withPgClient: inTime(engine, withPgClient),
      engine,
      events: safely(eventsOf(options), () => logger),
      logger,
    };
    await withPgClient((client) => checkPolicy(client, engine, policy));
    const names = policy === undefined ? await withPgClient(engine.policyNames) : [policy];
    const loops = names.map((name) => startShardLoop(context, { policy: name, shard: shard ?? null }));
    const nudge = (said: Partial<Notification>) => {
      for (const loop of loops) if (isFor(loop.lead, said.policy, said.shard)) loop.nudge();
    };
    const onNotification = ({ channel, payload }: { channel: string; payload?: string | undefined }) => {
      const said = channel === CHANNEL ? readNotification(payload, settings.schema) : undefined;
      if (said) nudge(said);
    };
    try {
      while (!signal.aborted)
        await listenUntilLost(
          { withPgClient, pgPool: options.pgPool },
          onNotification,
          () => nudge({}),
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

/** Passes notifications on until the signal aborts or the connection is lost. Loops also tick by their own heartbeat. */
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
