import type { Job, JobHelpers, TaskList } from "graphile-worker";
import { makeTickTask, TICK_TASK } from "../admit/tick-task.ts";
import { inTime } from "../db/deadline.ts";
import { makeEngine } from "../db/engine.ts";
import { noEvents } from "../events.ts";
import type { AnyPolicy } from "../policy/policy.ts";
import { finishedJob } from "../run/finished-job.ts";
import { makeReleaseQueue, type ReleaseQueue } from "../run/release-queue.ts";
import { makeUnadmittedLog } from "../run/unadmitted.ts";
import { type Observer, type Outcome, unwrapped, wrapTasks } from "../run/wrap-task.ts";
import { readSettings } from "../settings.ts";

/**
 * The same tasks, governed, for hosts that take no preset: jobs they add are staged, and each job's release is flushed
 * before its task resolves. Adds the task `dispatch_policy_tick`. There is no loop and no heartbeat: ticks come from the
 * crontab, another process or {@link runTickLoop}.
 *
 * @example runTaskList(options, wrapTaskList(tasks, { policies: [fetchEndpoint] }), pgPool);
 */
export function wrapTaskList<T extends TaskList>(
  tasks: T,
  options: { policies: readonly AnyPolicy[]; schema?: string | undefined },
): T {
  const settings = readSettings(options);
  const engine = makeEngine(settings.schema);
  const logUnadmitted = makeUnadmittedLog();
  const queues = new WeakMap<object, ReleaseQueue>();
  const observer: Observer = {
    engine,
    registry: settings.registry,
    events: noEvents,
    waitedLocally: () => 0,
    clockBehindMs: () => 0,
    comeBack: () => null, // no heartbeat, so nobody takes it for dead
    started: () => {},
    async returned(job, running, helpers, outcome) {
      const ended = { ...running, error: await failureOf(job, outcome) };
      const finished = finishedJob(job, ended, { logger: helpers.logger, events: noEvents });
      const flushed = queueOf(helpers).push(finished, running.policy.identifier);
      // a failure is released once Graphile Worker has recorded it, which it does after the task rejects
      if (finished.retry === null) await flushed;
    },
    unadmitted: (job, policy, { logger }) => logUnadmitted(policy, job, logger),
  };

  /** One queue per pool of connections. */
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

  const wrapped: TaskList = {
    [TICK_TASK]: unwrapped(makeTickTask({ ...settings, engine, events: noEvents })),
    ...tasks,
  };
  wrapTasks(wrapped, () => observer);
  return wrapped as T;
}

/** What Graphile Worker is about to make of it: a batch fails when one of its parts was rejected. */
async function failureOf({ payload }: Job, outcome: Outcome): Promise<unknown> {
  if ("error" in outcome) return outcome.error ?? new Error(String(outcome.error));
  const { result } = outcome;
  if (!Array.isArray(payload) || !Array.isArray(result) || payload.length !== result.length) return null;
  const parts = await Promise.allSettled(result);
  const errors = parts.flatMap((part) => (part.status === "rejected" ? [part.reason] : []));
  if (errors.length === 0) return null;
  return new Error(`Batch failures:\n${errors.map((error) => error?.message ?? String(error)).join("\n")}`);
}
