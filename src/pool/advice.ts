import { sharesSessions } from "../db/pooler.ts";
import { tasksOf } from "../policy/policy.ts";
import type { PoolContext } from "./pool-context.ts";

/**
 * Warns, when a pool has started, of what would go wrong in silence. It needs a few statements. If they fail, the pool goes on
 * without advice.
 */
export async function advise(context: PoolContext): Promise<void> {
  const { engine, settings, logger, poolId, withPgClient } = context;
  try {
    if (await sharesSessions(engine, context)) {
      logger.warn(POOLED);
      await withPgClient((client) => engine.workerPooled(client, poolId));
    }
    const tasks = settings.registry.policies.flatMap(tasksOf);
    for (const { task, policy, own_version, in_force_version } of await withPgClient((client) =>
      engine.advice(client, poolId, tasks),
    ))
      if (task !== null) logger.warn(withoutWorker(context, task));
      else if (own_version === null) logger.warn(twoDefinitions(policy));
      else logger.info(olderDefinition(policy, own_version, in_force_version));
    logger.debug("The set-up has been checked");
  } catch (error) {
    logger.debug(`No advice at the start: ${(error as Error).message}`, { error });
  }
}

const POOLED =
  "This worker is connected through a pooler in transaction mode. It blocks notifications, so jobs start only at the next " +
  "poll. Connect workers directly, or through a pooler in session mode. Producers may keep using it";

const twoDefinitions = (policy: string) =>
  `Live workers have two definitions of policy "${policy}" with one version. That of the worker which started last is in ` +
  "force, and jobs that the others add bring the limits of theirs. Give the newer definition a higher version";

const olderDefinition = (policy: string, own: number, inForce: number) =>
  `This worker has version ${own} of policy "${policy}", and version ${inForce} is in force, which another ` +
  "worker has. If you roll back, nothing is to be done: the newest version that a live worker has comes into force";

function withoutWorker({ settings }: PoolContext, task: string): string {
  const policy = settings.registry.ofTask(task)?.identifier;
  return (
    `No worker that runs now has the task "${task}" of policy "${policy}". Its jobs are admitted, and wait until a worker ` +
    "has it. Register the task under this name, or start the worker that has it"
  );
}
