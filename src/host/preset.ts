import type { CompiledSharedOptions, Job, Logger, Task } from "graphile-worker";
import { makeTickTask } from "../admit/tick-task.ts";
import { type Engine, makeEngine } from "../db/engine.ts";
import { migrate } from "../db/migrate.ts";
import { type EventSink, safely } from "../events.ts";
import { ours } from "../log.ts";
import { sweepFully } from "../operate/sweep.ts";
import { warnOfRepairs } from "../pool/repairs.ts";
import { makeRunningJobs } from "../run/running-jobs.ts";
import { makeUnadmittedLog } from "../run/unadmitted.ts";
import { UncountedRunError } from "../run/uncounted.ts";
import { markHandled, type Observer } from "../run/wrap-task.ts";
import { type DispatchPolicyOptions, readSettings, type Settings } from "../settings.ts";
import { type OwnEvents, ownEvents } from "./own-events.ts";
import { makePools, type Pools } from "./pools.ts";
import { makeShutdowns } from "./shutdowns.ts";
import {
  beforeEachFetch,
  beforeLocalFetches,
  listen,
  poolOf,
  refuseFirstFetch,
  renewTaskIds,
  wrapTaskLists,
} from "./worker-internals.ts";

declare global {
  namespace GraphileConfig {
    interface Preset {
      dispatchPolicy?: DispatchPolicyOptions | undefined;
    }
  }
}

const SHUTDOWN_STEP_MS = 5000;

/**
 * The preset to add to Graphile Worker's. It migrates this package's schema, stages the jobs that tasks add, ticks, and observes
 * the jobs of its policies.
 *
 * A preset tree may have one; graphile-config throws an error for a second.
 *
 * @throws {ArgumentError} if an option is unknown or of another form; it names the option
 * @throws {DispatchPolicyError} with code `unsupported_node` if Node is older than 22.18
 * @example
 * export default {
 *   extends: [WorkerPreset, dispatchPolicyPreset({ policies: [fetchEndpoint] })],
 * } satisfies GraphileConfig.Preset;
 */
export function dispatchPolicyPreset(options: DispatchPolicyOptions): GraphileConfig.Preset {
  return { plugins: [makePlugin(readSettings(options))], dispatchPolicy: options };
}

function makePlugin(settings: Settings): GraphileConfig.Plugin {
  // by the hooks of compiled options: see ownEvents
  const hosts = new WeakMap<object, Host>();
  return {
    name: "DispatchPolicyPlugin",
    description: "Admission control for Graphile Worker jobs, by partition",
    worker: {
      middleware: {
        // biome-ignore lint/suspicious/noExplicitAny: generic in the options of whoever starts up
        init(next, _event): any {
          const compiled = next() as CompiledSharedOptions;
          hosts.set(compiled.hooks, attach(compiled, settings));
          return compiled;
        },
        async migrate(next, event) {
          await next();
          await migrate(event.client, { workerSchema: event.ctx.workerSchema, schema: settings.schema });
        },
        async poolGracefulShutdown(next, event) {
          const host = hosts.get(event.ctx.hooks);
          const pool = host?.pools.byId(event.workerPool.id);
          await settled(pool?.stepDown(), host?.logger, "stepping down");
          const part = next();
          await (host?.shutdowns.graphileWorker(event.workerPool, part) ?? part);
          await settled(pool?.close(), host?.logger, "releasing the last jobs");
        },
        async poolForcefulShutdown(next, event) {
          const host = hosts.get(event.ctx.hooks);
          try {
            const part = next();
            const result = await (host?.shutdowns.graphileWorker(event.workerPool, part) ?? part);
            for (const job of (result as { forceFailedJobs?: Job[] } | undefined)?.forceFailedJobs ?? []) {
              host?.forceFailed(event.workerPool.id, job, event.message);
            }
            return result as never;
          } finally {
            const closed = host?.pools.byId(event.workerPool.id)?.close();
            await settled(closed, host?.logger, "releasing failed jobs");
          }
        },
      },
      hooks: {
        async startWorker(ctx, event) {
          const host = hosts.get(ctx.hooks);
          await host?.pools.start(event.worker.workerPool, event.withPgClient, event.tasks);
          const pool = host?.pools.byId(event.worker.workerPool.id);
          if (pool?.isUnregistered()) refuseFirstFetch(event, unregistered());
        },
      },
    },
  };
}

/** Waits for a step of a shutdown, which goes on if it fails: a sweep or another process does the rest. */
async function settled(step: Promise<void> | undefined, logger: Logger | undefined, what: string) {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(reject, SHUTDOWN_STEP_MS, new Error(`no answer within ${SHUTDOWN_STEP_MS} ms`));
  });
  try {
    await Promise.race([step, deadline]);
  } catch (error) {
    logger?.warn(`${what} failed at shutdown: ${(error as Error).message}`, { error });
  } finally {
    clearTimeout(timer);
  }
}

interface Host {
  readonly logger: Logger;
  readonly pools: Pools;
  readonly shutdowns: ReturnType<typeof makeShutdowns>;
  /** A forceful shutdown has failed the job. */
  forceFailed(poolId: string, job: Job, message: string): void;
}

/** Wires the package to one compiled set of options: wraps its tasks and listens to its events. */
function attach(compiled: CompiledSharedOptions, settings: Settings): Host {
  const engine = makeEngine(settings.schema);
  const logger = ours(compiled.logger);
  const own = ownEvents(compiled);
  const events = safely(compiled.events, () => logger);
  const jobs = makeRunningJobs();
  const { checkListening } = listen(own, settings.schema, logger, (poolId, said, pid) =>
    pools.byId(poolId)?.onNotification(said, pid),
  );
  const pools = makePools(compiled, { engine, settings, events, logger, jobs, checkListening });
  const logUnadmitted = makeUnadmittedLog();

  const observer: Observer = {
    engine,
    registry: settings.registry,
    events,
    waitedLocally: jobs.waitedMs,
    clockBehindMs: (job) => pools.byId(job.locked_by)?.clockBehindMs ?? 0,
    confirm(job) {
      const { locked_by: poolId } = job;
      if (poolId === null) return null;
      const doubt = pools.byId(poolId)?.confirm(job) ?? null;
      if (doubt === null) return null;
      jobs.asks(poolId, job);
      return doubt.then(() => jobs.runs(poolId, job));
    },
    isDisowned: jobs.isDisowned,
    started(job, running) {
      jobs.started(job, running);
      pools.byId(job.locked_by)?.started(job, running);
    },
    unadmitted(job, policy) {
      logUnadmitted(policy, job, logger);
      pools.byId(job.locked_by)?.caught(policy, job.task_identifier);
    },
  };

  function ended(poolId: string, job: Job, error: unknown): void {
    const running = jobs.ended(job);
    const pool = pools.byId(poolId);
    if (jobs.isDisowned(job)) pool?.endedUnseen(job);
    else if (running) void pool?.release(job, running, error);
    else if (error instanceof UncountedRunError)
      void pool?.releaseUnstarted(job, settings.registry.ofTask(job.task_identifier), error);
    else if (job.key !== null && job.revision > 0) void pool?.releaseReplaced(job);
  }

  wrapTaskLists(compiled, own, observer, tickTask(pools, { engine, settings, events }), logger);
  guardFetches(compiled, own, pools);
  renewTaskIds(own, settings.sweepIntervalMs);
  own.on("localQueue:getJobs:complete", ({ localQueue, jobs: fetched }) =>
    jobs.fetched(poolOf(localQueue).id, fetched),
  );
  own.on("localQueue:returnJobs", ({ localQueue, jobs: returned }) =>
    jobs.returned(poolOf(localQueue).id, returned),
  );
  own.on("job:start", ({ worker, job }) => jobs.runs(worker.workerPool.id, job));
  own.on("job:complete", ({ worker, job, error }) => {
    jobs.done(worker.workerPool.id, job, error === null);
    ended(worker.workerPool.id, job, error);
  });
  own.on("pool:listen:error", ({ workerPool }) => pools.byId(workerPool.id)?.lostConnection());
  own.on("worker:getJob:error", ({ worker }) => pools.byId(worker.workerPool.id)?.lostAnswer());
  own.on("pool:release", ({ workerPool }) => pools.release(workerPool.id));
  return {
    ...{ logger, pools, shutdowns: makeShutdowns(compiled, own, logger) },
    forceFailed(poolId, job, message) {
      const hasPolicy = settings.registry.ofTask(job.task_identifier) !== undefined;
      ended(poolId, job, hasPolicy ? new UncountedRunError(message) : new Error(message));
    },
  };
}

/** The task that the crontab starts. It ticks, and then sweeps. */
function tickTask(
  pools: Pools,
  { engine, settings, events }: { engine: Engine; settings: Settings; events: EventSink },
): Task {
  const task = makeTickTask({
    ...settings,
    engine,
    events,
    leadOf: (poolId) => pools.byId(poolId)?.lead,
    async afterwards(withPgClient, logger) {
      const poolId = pools.all()[0]?.poolId;
      const { repaired } = await sweepFully({ withPgClient, engine, events, logger, ages: settings, poolId });
      warnOfRepairs(repaired, logger);
    },
  });
  return markHandled(task);
}

/** Lets no pool fetch jobs before it is registered, and lets a one-shot pool catch up before each fetch. */
function guardFetches(compiled: CompiledSharedOptions, own: OwnEvents, pools: Pools): void {
  beforeLocalFetches(own, async (workerPool, withPgClient, tasks) => {
    await pools.start(workerPool, withPgClient, tasks);
    const pool = pools.byId(workerPool.id);
    if (pool?.isUnregistered()) throw unregistered();
    await pool?.heard();
  });
  beforeEachFetch(compiled, () => {
    const all = pools.all();
    if (all.some((pool) => pool.isUnregistered())) return Promise.reject(unregistered());
    const waits = all.flatMap((pool) => (pool.oneShot ? pool.catchUp() : (pool.heard() ?? [])));
    return waits.length === 0 ? null : Promise.all(waits);
  });
}

/** A pool without registration must fetch nothing: nobody would unlock its jobs if it were killed. */
function unregistered(): Error {
  return new Error("This worker pool could not register");
}
