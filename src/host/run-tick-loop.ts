import { runLoops } from "../admit/run-loops.ts";
import { check, type Rule } from "../checks/options.ts";
import { inTime } from "../db/deadline.ts";
import { makeEngine } from "../db/engine.ts";
import { safely } from "../events.ts";
import { ours } from "../log.ts";
import { checkPolicy } from "../operate/call.ts";
import {
  checkUtilsOptions,
  eventsOf,
  makePolicyUtils,
  type PolicyUtilsOptions,
  utilsSettings,
} from "./policy-utils.ts";

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
    const leads = names.map((name) => ({ policy: name, shard: shard ?? null }));
    await runLoops(context, leads, { withPgClient, pgPool: options.pgPool }, signal);
  } finally {
    await utils.release();
  }
}
