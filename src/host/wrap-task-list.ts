import type { EventEmitter } from "node:events";
import type { JobHelpers, Task, TaskList, WorkerEvents } from "graphile-worker";
import { consoleLogFactory, Logger } from "graphile-worker";
import { declareOnce } from "../admit/declare.ts";
import { makeTickTask } from "../admit/tick-task.ts";
import { anEmitter, checkOptions, optional } from "../checks/options.ts";
import { inTime } from "../db/deadline.ts";
import { type Engine, makeEngine } from "../db/engine.ts";
import { errorText } from "../error-text.ts";
import { type EventSink, safely } from "../events.ts";
import { ours, oursWithoutJob } from "../log.ts";
import { TICK_TASK } from "../policy/job.ts";
import type { AnyPolicy } from "../policy/policy.ts";
import { finishedJob, unstartedJob } from "../run/finished-job.ts";
import { makeReleaseQueue, type ReleaseQueue } from "../run/release-queue.ts";
import { makeUnadmittedLog } from "../run/unadmitted.ts";
import { markHandled, type Observer, wrapTasks } from "../run/wrap-task.ts";
import { readSettings } from "../settings.ts";
import { withNewTaskIds } from "./worker-internals.ts";

/**
 * Wraps tasks for hosts that take no preset.
 *
 * Where a preset can be given, write `run({ preset, taskList })` with {@link dispatchPolicyPreset} instead: it wraps the tasks
 * by itself, sets up the schema, ticks and sweeps. The jobs that these tasks add are staged, and each job's release is flushed
 * before its task resolves. It adds the task `dispatch_policy_tick`. The policies are declared at the first job, so a tick by
 * the crontab is enough.
 *
 * There is no loop and no heartbeat: the crontab, another process or {@link runTickLoop} must tick, or no staged job runs.
 * The schema must be there: `makePolicyUtils` or the command `graphile-worker-dispatch-policy migrate` sets it up.
 *
 * `events` is the emitter of this package's events, best the one that `runTaskList` gets; default none.
 *
 * @throws {ArgumentError} if an option is unknown or of another form; it names the option
 * @example runTaskList(options, wrapTaskList(tasks, { policies: [fetchEndpoint] }), pgPool);
 */
export function wrapTaskList<T extends TaskList>(
  tasks: T,
  options: {
    policies: readonly AnyPolicy[];
    schema?: string | undefined;
    events?: EventEmitter | WorkerEvents | undefined;
  },
): T {
  checkOptions("wrapTaskList", options, ["policies", "schema", "events"]);
  optional("wrapTaskList: events", options.events, anEmitter);
  const { events: emitter, ...own } = options;
  // it has no settings for ticks: those that workers with the preset declared stay in force
  const settings = readSettings(own, false);
  const engine = makeEngine(settings.schema);
  const logUnadmitted = makeUnadmittedLog();
  // no other logger is known here than those of jobs
  let logger = ours(new Logger(consoleLogFactory));
  const events = safely(emitter, () => logger);
  const queueOf = queuesOf(engine, events);
  const declared = declareOnce(engine, settings);
  const observer: Observer = {
    engine,
    registry: settings.registry,
    events,
    waitedLocally: () => 0,
    clockBehindMs: () => 0,
    confirm: () => null, // without heartbeats no other process takes this one for dead
    prepare: (policy, { withPgClient, logger: ofJob }) => {
      logger = oursWithoutJob(ofJob);
      const declaring = declared(withPgClient, logger)?.catch(cannotDeclare(logger)) ?? null;
      return policy ? declaring : null;
    },
    started: () => {},
    async returned(job, running, helpers, outcome) {
      // a batch has its parts' errors in `running`
      const error = "error" in outcome ? (outcome.error ?? new Error(errorText(outcome.error))) : null;
      const finished = finishedJob(job, running, error, { logger: ours(helpers.logger), events });
      const flushed = queueOf(helpers).push(finished, running.policy.identifier);
      // a failure is released after Graphile Worker has recorded it, and that happens after the task has rejected
      if (finished.retry === null) await flushed;
    },
    // Graphile Worker records the failure after this, so nobody waits for the release
    uncounted: (job, policy, helpers, error) =>
      void queueOf(helpers).push(unstartedJob(job, policy, error), policy.identifier),
    unadmitted: (job, policy, helpers) => logUnadmitted(policy, job, ours(helpers.logger)),
  };

  const tick = makeTickTask({ ...settings, engine, events });
  const declareAndTick: Task = async (payload, helpers) => {
    await declared(helpers.withPgClient, ours(helpers.logger));
    return tick(payload, helpers);
  };
  const wrapped: TaskList = { [TICK_TASK]: markHandled(declareAndTick), ...tasks };
  wrapTasks(wrapped, () => observer);
  return withNewTaskIds(wrapped as T);
}

/** There is one release queue for each pool of connections. */
function queuesOf(engine: Engine, events: EventSink): (helpers: JobHelpers) => ReleaseQueue {
  const queues = new WeakMap<object, ReleaseQueue>();
  return ({ withPgClient, logger }) => {
    let queue = queues.get(withPgClient);
    if (!queue) {
      queue = makeReleaseQueue({
        withPgClient: inTime(engine, withPgClient),
        engine,
        events,
        logger: oursWithoutJob(logger),
        keepsAlive: false,
      });
      queues.set(withPgClient, queue);
    }
    return queue;
  };
}

/** No job fails because its policy cannot be declared yet: the next job tries again. */
function cannotDeclare(logger: Logger) {
  return (error: Error): void =>
    logger.warn(`Cannot declare the policies, trying again at the next job: ${error.message}`, { error });
}
