import type {
  CompiledSharedOptions,
  Job,
  Task,
  TaskList,
  WithPgClient,
  Worker,
  WorkerPool,
} from "graphile-worker";
import { makeEngine } from "./db/engine.ts";
import { migrate } from "./db/migrate.ts";
import type { EventSink } from "./events.ts";
import { type DispatchPolicyOptions, readSettings, type Settings } from "./settings.ts";
import { sweepOnce } from "./sweep.ts";
import { makeTickTask, TICK_TASK } from "./tick-task.ts";
import { makeWorkerPool, type WorkerPoolRuntime } from "./worker-pool.ts";
import { isWrapped, type Observer, type RunningJob, stagedIdOf, unwrapped, wrapTasks } from "./wrap-task.ts";

declare global {
  namespace GraphileConfig {
    interface Preset {
      dispatchPolicy?: DispatchPolicyOptions | undefined;
    }
  }
}

const CHANNEL = "dispatch_policy";
const SHUTDOWN_STEP_MS = 5000;
/** One-shot pools (runOnce, runTaskListOnce): no loop, no heartbeat, no listener. */
const ONE_SHOT = /^otpool-/;

/**
 * The preset to add to Graphile Worker's: migrates this package's schema, stages what tasks add, ticks, and observes
 * the jobs of its policies. Once per preset tree: a second one is an error, which graphile-config raises.
 *
 * @throws {ArgumentError} when an option is unknown or of another form, naming it
 * @example
 * export default {
 *   extends: [WorkerPreset, dispatchPolicyPreset({ policies: [fetchEndpoint] })],
 * } satisfies GraphileConfig.Preset;
 */
export function dispatchPolicyPreset(options: DispatchPolicyOptions): GraphileConfig.Preset {
  return { plugins: [makePlugin(readSettings(options))], dispatchPolicy: options };
}

function makePlugin(settings: Settings): GraphileConfig.Plugin {
  const hosts = new WeakMap<object, Host>();
  return {
    name: "DispatchPolicyPlugin",
    description: "Admission control for Graphile Worker jobs, by partition",
    worker: {
      middleware: {
        // biome-ignore lint/suspicious/noExplicitAny: generic in the options of whoever starts up
        init(next, _event): any {
          const compiled = next() as CompiledSharedOptions;
          if (!hosts.has(compiled.events)) hosts.set(compiled.events, attach(compiled, settings));
          return compiled;
        },
        async migrate(next, event) {
          await next();
          await migrate(event.client, { workerSchema: event.ctx.workerSchema, schema: settings.schema });
        },
        async poolGracefulShutdown(next, event) {
          const pool = hosts.get(event.ctx.events)?.pools.get(event.workerPool.id);
          await settled(pool?.stepDown(), event.ctx.logger, "stepping down");
          await next();
          await settled(pool?.close(), event.ctx.logger, "releasing the last jobs");
        },
        async poolForcefulShutdown(next, event) {
          const host = hosts.get(event.ctx.events);
          const result = await next();
          for (const job of (result as { forceFailedJobs?: Job[] } | undefined)?.forceFailedJobs ?? []) {
            host?.ended(event.workerPool.id, job, new Error(event.message));
          }
          await settled(
            host?.pools.get(event.workerPool.id)?.close(),
            event.ctx.logger,
            "releasing failed jobs",
          );
          return result as never;
        },
      },
      hooks: {
        async startWorker(ctx, event) {
          await hosts.get(ctx.events)?.startPool(event.worker, event.withPgClient, event.tasks);
        },
      },
    },
  };
}

/** Shutdown goes on whatever happens here: a sweep or another process takes over what was left. */
async function settled(
  step: Promise<void> | undefined,
  logger: CompiledSharedOptions["logger"],
  what: string,
) {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(reject, SHUTDOWN_STEP_MS, new Error(`no answer within ${SHUTDOWN_STEP_MS} ms`));
  });
  try {
    await Promise.race([step, deadline]);
  } catch (error) {
    logger.warn(`dispatch-policy: ${what} failed at shutdown: ${(error as Error).message}`, { error });
  } finally {
    clearTimeout(timer);
  }
}

interface Host {
  readonly pools: Map<string, WorkerPoolRuntime>;
  startPool(worker: Worker, withPgClient: WithPgClient, tasks: TaskList): Promise<void>;
  ended(poolId: string, job: Job, error: unknown): void;
}

/** Wires the package to one compiled set of options: wraps its tasks and listens to its events. */
function attach(compiled: CompiledSharedOptions, settings: Settings): Host {
  const events = compiled.events as unknown as EventSink;
  const engine = makeEngine(settings.schema);
  const logger = compiled.logger.scope({ label: "dispatch-policy" });
  const pools = new Map<string, WorkerPoolRuntime>();
  const starting = new Map<string, Promise<void>>();
  const running = new WeakMap<Job, RunningJob>();
  const fetchedAt = new WeakMap<Job, number>();
  let warnedOfUnadmitted = false;

  const observer: Observer = {
    engine,
    registry: settings.registry,
    waitedLocally: (job) => performance.now() - (fetchedAt.get(job) ?? performance.now()),
    started: (job, state) => void running.set(job, state),
    async returned(job, state, _helpers, outcome) {
      const pool = pools.get(job.locked_by ?? "");
      // A one-shot pool asks for its next job at once and ends when there is none: release and admit before that.
      // What failed waits for Graphile Worker to record it; what a batch's parts came to is not known yet.
      if (!pool || !ONE_SHOT.test(job.locked_by ?? "") || outcome || Array.isArray(job.payload)) return;
      running.delete(job);
      await pool.release(job, state, null);
      await pool.tickUntilIdle([state.policy.identifier]);
    },
    unadmitted(job, policy) {
      if (warnedOfUnadmitted) return;
      warnedOfUnadmitted = true;
      logger.warn(
        `Job ${job.id} of ${job.task_identifier} starts without having been admitted by policy ${policy.identifier}: it ` +
          "was added past it (graphile_worker.add_job, the crontab). It runs at once and counts against no limit. Said once.",
      );
    },
  };

  function ended(poolId: string, job: Job, error: unknown): void {
    const state = running.get(job);
    if (!state) return;
    running.delete(job);
    void pools.get(poolId)?.release(job, state, error);
  }

  /** Once per pool, however many workers it has; each of them waits for it before its first job. */
  function startPool(worker: Worker, withPgClient: WithPgClient, tasks: TaskList): Promise<void> {
    const { workerPool } = worker;
    const known = starting.get(workerPool.id);
    if (known) return known;
    const started = openPool(workerPool, withPgClient, tasks);
    starting.set(workerPool.id, started);
    return started;
  }

  async function openPool(
    workerPool: WorkerPool,
    withPgClient: WithPgClient,
    tasks: TaskList,
  ): Promise<void> {
    const pool = makeWorkerPool({
      poolId: workerPool.id,
      slots: compiled.resolvedPreset.worker.concurrentJobs,
      tasks: Object.keys(tasks),
      withPgClient,
      engine,
      settings,
      events,
      logger,
    });
    pools.set(workerPool.id, pool);
    try {
      await pool.start(ONE_SHOT.test(workerPool.id));
    } catch (error) {
      // Graphile Worker swallows what a hook throws: without its schema the pool must not run ungoverned.
      logger.error(`Cannot start: ${(error as Error).message}; shutting this worker pool down`, { error });
      void workerPool.gracefulShutdown("dispatch-policy could not start");
    }
  }

  const tickTask = unwrapped(
    makeTickTask({
      ...{ engine, events, registry: settings.registry },
      partitionBatchSize: settings.partitionBatchSize,
      tickMaxDurationMs: settings.tickMaxDurationMs,
      minTickIntervalMs: settings.minTickIntervalMs,
      async afterwards(withPgClient) {
        const { partitionInactiveAfterMs } = settings;
        await sweepOnce({ withPgClient, engine, events, partitionInactiveAfterMs });
      },
    }),
  );
  wrapTaskLists(compiled, observer, tickTask, logger);
  listen(compiled, settings.schema, (poolId, policy) => pools.get(poolId)?.nudge(policy));
  compiled.events.on("localQueue:getJobs:complete", ({ jobs }) => {
    for (const job of jobs) if (stagedIdOf(job) !== null) fetchedAt.set(job, performance.now());
  });
  compiled.events.on("job:complete", ({ worker, job, error }) => ended(worker.workerPool.id, job, error));
  compiled.events.on("pool:release", ({ workerPool }) => {
    pools.delete(workerPool.id);
    starting.delete(workerPool.id);
  });
  return { pools, startPool, ended };
}

/**
 * Graphile Worker has no per-job middleware. Between them these three cover every way to run tasks: the list among the
 * options, the local queue's, and each worker's. The first and second are internals, guarded by the host matrix test.
 */
function wrapTaskLists(
  compiled: CompiledSharedOptions,
  observer: Observer,
  tickTask: Task,
  logger: CompiledSharedOptions["logger"],
): void {
  let warned = false;
  const wrap = (tasks: TaskList): void => {
    const own = tasks[TICK_TASK];
    if (!own) tasks[TICK_TASK] = tickTask;
    else if (!isWrapped(own) && !warned) {
      warned = true;
      logger.warn(
        `There is a task named ${TICK_TASK} already: it is kept, and this package's own is not used`,
      );
    }
    wrapTasks(tasks, observer);
  };
  const options = compiled._rawOptions as { taskList?: TaskList };
  if (options.taskList) {
    const taskList = { ...options.taskList };
    wrap(taskList);
    (compiled as { _rawOptions: unknown })._rawOptions = { ...options, taskList };
  }
  compiled.events.on("localQueue:init", ({ localQueue }) =>
    wrap((localQueue as unknown as { tasks: TaskList }).tasks),
  );
  compiled.events.on("worker:create", ({ tasks }) => wrap(tasks));
}

/** Listens on Graphile Worker's own client: a pool of two connections must do. */
function listen(
  { events, logger }: CompiledSharedOptions,
  schema: string,
  onNotification: (poolId: string, policy: string | undefined) => void,
): void {
  events.on("pool:listen:success", ({ workerPool, client }) => {
    // a moment later: Graphile Worker sends its own LISTEN first
    setImmediate(() => {
      client.query(`listen ${CHANNEL}`).then(
        () => onNotification(workerPool.id, undefined), // what was said while nobody listened
        (error: Error) => logger.debug(`dispatch-policy: listen failed: ${error.message}`),
      );
    });
  });
  events.on("pool:listen:notification", ({ workerPool, message }) => {
    if (message.channel !== CHANNEL) return;
    const said = JSON.parse(message.payload ?? "{}") as { schema?: string; policy?: string };
    if (said.schema === schema) onNotification(workerPool.id, said.policy);
  });
}
