import type { Job, JobHelpers, Logger, Task, TaskList } from "graphile-worker";
import { declareOnce } from "../admit/declare.ts";
import { makeTickTask } from "../admit/tick-task.ts";
import { checkOptions } from "../checks/options.ts";
import { inTime } from "../db/deadline.ts";
import { makeEngine } from "../db/engine.ts";
import { noEvents } from "../events.ts";
import { TICK_TASK } from "../policy/job.ts";
import type { AnyPolicy } from "../policy/policy.ts";
import { finishedJob } from "../run/finished-job.ts";
import { makeReleaseQueue, type ReleaseQueue } from "../run/release-queue.ts";
import { makeUnadmittedLog } from "../run/unadmitted.ts";
import { markHandled, type Observer, type Outcome, wrapTasks } from "../run/wrap-task.ts";
import { readSettings } from "../settings.ts";

/**
 * Wraps tasks for hosts that take no preset. Where a preset can be given, write `run({ preset, taskList })` with
 * {@link dispatchPolicyPreset} instead: it wraps the tasks by itself, sets up the schema, ticks and sweeps.
 *
 * The jobs that these tasks add are staged, and each job's release is flushed before its task resolves. It adds the task
 * `dispatch_policy_tick`. The policies are declared at the first job, so a tick by the crontab is enough.
 *
 * There is no loop and no heartbeat: the crontab, another process or {@link runTickLoop} must tick, or no staged job runs.
 * The schema must be there: `makePolicyUtils` or the command `graphile-worker-dispatch-policy migrate` sets it up.
 *
 * @throws {ArgumentError} if an option is unknown or of another form; it names the option
 * @example runTaskList(options, wrapTaskList(tasks, { policies: [fetchEndpoint] }), pgPool);
 */
export function wrapTaskList<T extends TaskList>(
  tasks: T,
  options: { policies: readonly AnyPolicy[]; schema?: string | undefined },
): T {
  checkOptions("wrapTaskList", options, ["policies", "schema"]);
  // it has no settings for ticks: those that workers with the preset declared stay in force
  const settings = readSettings(options, false);
  const engine = makeEngine(settings.schema);
  const logUnadmitted = makeUnadmittedLog();
  const queues = new WeakMap<object, ReleaseQueue>();
  const declared = declareOnce(engine, settings);
  const observer: Observer = {
    engine,
    registry: settings.registry,
    events: noEvents,
    waitedLocally: () => 0,
    clockBehindMs: () => 0,
    confirm: () => null, // without heartbeats no other process takes this one for dead
    prepare: (policy, { withPgClient, logger }) => {
      const declaring = declared(withPgClient, logger)?.catch(cannotDeclare(logger)) ?? null;
      return policy ? declaring : null;
    },
    started: () => {},
    async returned(job, running, helpers, outcome) {
      const ended = { ...running, error: await failureOf(job, outcome) };
      const finished = finishedJob(job, ended, { logger: helpers.logger, events: noEvents });
      const flushed = queueOf(helpers).push(finished, running.policy.identifier);
      // a failure is released after Graphile Worker has recorded it, and that happens after the task has rejected
      if (finished.retry === null) await flushed;
    },
    unadmitted: (job, policy, { logger }) => logUnadmitted(policy, job, logger),
  };

  /** There is one queue for each pool of connections. */
  function queueOf({ withPgClient, logger }: JobHelpers): ReleaseQueue {
    let queue = queues.get(withPgClient);
    if (!queue) {
      queue = makeReleaseQueue({
        withPgClient: inTime(engine, withPgClient),
        engine,
        events: noEvents,
        logger,
        keepsAlive: false,
      });
      queues.set(withPgClient, queue);
    }
    return queue;
  }

  const tick = makeTickTask({ ...settings, engine, events: noEvents });
  const declareAndTick: Task = async (payload, helpers) => {
    await declared(helpers.withPgClient, helpers.logger);
    return tick(payload, helpers);
  };
  const wrapped: TaskList = { [TICK_TASK]: markHandled(declareAndTick), ...tasks };
  wrapTasks(wrapped, () => observer);
  return wrapped as T;
}

/** No job fails because its policy cannot be declared yet: the next job tries again. */
function cannotDeclare(logger: Logger) {
  return (error: Error): void =>
    logger.warn(
      `dispatch-policy: cannot declare the policies, trying again at the next job: ${error.message}`,
      { error },
    );
}

/** The error that Graphile Worker will record, or null. A batch fails if one of its parts was rejected. */
async function failureOf({ payload }: Job, outcome: Outcome): Promise<unknown> {
  if ("error" in outcome) return outcome.error ?? new Error(String(outcome.error));
  const { result } = outcome;
  if (!Array.isArray(payload) || !Array.isArray(result) || payload.length !== result.length) return null;
  const parts = await Promise.allSettled(result);
  const errors = parts.flatMap((part) => (part.status === "rejected" ? [part.reason] : []));
  if (errors.length === 0) return null;
  return new Error(`Batch failures:\n${errors.map((error) => error?.message ?? String(error)).join("\n")}`);
}
