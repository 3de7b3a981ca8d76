import { sharesSessions } from "../db/pooler.ts";
import { tasksOf } from "../policy/policy.ts";
import type { PoolContext } from "./pool-context.ts";

/**
 * Warns, when a pool has started, of what would go wrong in silence. It needs five statements. If they fail, the pool goes on
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
    for (const task of await withPgClient((client) => engine.tasksWithoutWorker(client, tasks)))
      logger.warn(withoutWorker(context, task));
    for (const policy of await withPgClient((client) => engine.otherDefinitions(client, poolId)))
      logger.warn(twoDefinitions(policy));
    for (const newer of await withPgClient((client) => engine.newerDefinitions(client, poolId)))
      logger.info(olderDefinition(newer));
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

interface Newer {
  readonly policy: string;
  readonly own_version: number;
  readonly in_force_version: number;
}

const olderDefinition = ({ policy, own_version, in_force_version }: Newer) =>
  `This worker has version ${own_version} of policy "${policy}", and version ${in_force_version} is in force, which another ` +
  "worker has. If you roll back, nothing is to be done: the newest version that a live worker has comes into force";

function withoutWorker({ settings }: PoolContext, task: string): string {
  const policy = settings.registry.ofTask(task)?.identifier;
  return (
    `No worker that runs now has the task "${task}" of policy "${policy}". Its jobs are admitted, and wait until a worker ` +
    "has it. Register the task under this name, or start the worker that has it"
  );
}
