import { makeEngine } from "./db/engine.ts";
import { makePolicyUtils, type PolicyUtilsOptions, utilsSettings } from "./policy-utils.ts";
import { startShardLoop } from "./tick-loop.ts";

export interface RunTickLoopOptions extends PolicyUtilsOptions {
  /** Default: every policy in the database when the loop starts. */
  policy?: string | undefined;
  /** Default: every shard. */
  shard?: string | undefined;
  /** Ends the loop; the promise then resolves. */
  signal: AbortSignal;
}

/**
 * The tick loop on its own, in a process that runs no jobs. Ticks wherever there is something to do until the signal
 * aborts; other loops at work on the same policies do no harm. Keeps one connection for notifications.
 *
 * @example await runTickLoop({ connectionString, policies: [fetchEndpoint], signal: controller.signal });
 */
export async function runTickLoop({ policy, shard, signal, ...options }: RunTickLoopOptions): Promise<void> {
  const settings = utilsSettings(options);
  const utils = await makePolicyUtils(options);
  try {
    const { withPgClient, logger } = utils;
    const engine = makeEngine(settings.schema);
    const { registry, partitionBatchSize, minTickIntervalMs, loopHeartbeatMs } = settings;
    const events = { emit: () => false };
    const context = { withPgClient, engine, registry, events, logger };
    const names = policy === undefined ? await withPgClient(engine.policyNames) : [policy];
    const loops = names.map((name) =>
      startShardLoop(
        { ...context, partitionBatchSize, minTickIntervalMs, loopHeartbeatMs },
        { policy: name, shard: shard ?? null },
      ),
    );
    await withPgClient(async (client) => {
      client.on("notification", () => {
        for (const loop of loops) loop.nudge();
      });
      await client.query("listen dispatch_policy");
      for (const loop of loops) loop.nudge();
      await aborted(signal);
      client.removeAllListeners("notification");
      await client.query("unlisten dispatch_policy");
    });
    await Promise.all(loops.map((loop) => loop.stop()));
  } finally {
    await utils.release();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
