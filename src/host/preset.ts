import type { CompiledSharedOptions, Job, Logger, TaskList, WithPgClient, WorkerPool } from "graphile-worker";
import { makeTickTask } from "../admit/tick-task.ts";
import { makeEngine } from "../db/engine.ts";
import { migrate } from "../db/migrate.ts";
import { ArgumentError } from "../errors.ts";
import type { EventSink } from "../events.ts";
import { sweepFully } from "../operate/sweep.ts";
import { makeWorkerPool, type WorkerPoolRuntime } from "../pool/worker-pool.ts";
import { ticketOf } from "../run/fetched-job.ts";
import { makeUnadmittedLog } from "../run/unadmitted.ts";
import { type Observer, type RunningJob, unwrapped } from "../run/wrap-task.ts";
import { type DispatchPolicyOptions, readSettings, type Settings } from "../settings.ts";
import {
  beforeEachFetch,
  beforeLocalFetches,
  listen,
  refuseFirstFetch,
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
/** One-shot pools (runOnce, runTaskListOnce): no loop, no listener. */
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
          const host = hosts.get(event.ctx.events);
          const pool = host?.pools.get(event.workerPool.id);
          await settled(pool?.stepDown(), host?.logger, "stepping down");
          await next();
          await settled(pool?.close(), host?.logger, "releasing the last jobs");
        },
        async poolForcefulShutdown(next, event) {
          const host = hosts.get(event.ctx.events);
          try {
            const result = await next();
            for (const job of (result as { forceFailedJobs?: Job[] } | undefined)?.forceFailedJobs ?? []) {
              host?.ended(event.workerPool.id, job, new Error(event.message));
            }
            return result as never;
          } finally {
            const closed = host?.pools.get(event.workerPool.id)?.close();
            await settled(closed, host?.logger, "releasing failed jobs");
          }
        },
      },
      hooks: {
        async startWorker(ctx, event) {
          const host = hosts.get(ctx.events);
          await host?.startPool(event.worker.workerPool, event.withPgClient, event.tasks);
          const pool = host?.pools.get(event.worker.workerPool.id);
          if (pool?.isUnregistered()) refuseFirstFetch(event, unregistered());
        },
      },
    },
  };
}

/** Shutdown goes on whatever happens here: a sweep or another process takes over what was left. */
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

/** Its workers fetch nothing: nobody would unlock what they had if they were killed. */
function unregistered(): Error {
  return new Error("This worker pool could not register");
}

/** @throws {ArgumentError} where Graphile Worker listens with the only connection there is, and would wait for another for ever */
function checkConnections({ _rawOptions, resolvedPreset }: CompiledSharedOptions): void {
  const { pgPool } = _rawOptions as { pgPool?: { options?: { max?: unknown } } };
  const [key, max] = pgPool
    ? ["pgPool: max", pgPool.options?.max]
    : ["worker.maxPoolSize", resolvedPreset.worker.maxPoolSize];
  if (typeof max !== "number" || max > 1) return;
  throw new ArgumentError(
    `${key} is ${max}, expected at least 2: Graphile Worker keeps one connection of its pool to listen with, and needs ` +
      "another to fetch jobs",
  );
}

/** A clock here has whole milliseconds, and is compared over a network: the quickest of a few looks tells best. */
const CLOCK_MARGIN_MS = 5;
const CLOCK_LOOKS = 5;

interface Host {
  readonly logger: Logger;
  readonly pools: Map<string, WorkerPoolRuntime>;
  startPool(workerPool: WorkerPool, withPgClient: WithPgClient, tasks: TaskList): Promise<void>;
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
  const clocks = new Map<string, number>();
  const logUnadmitted = makeUnadmittedLog();

  const observer: Observer = {
    engine,
    registry: settings.registry,
    events,
    waitedLocally: (job) => {
      const at = fetchedAt.get(job);
      return at === undefined ? 0 : performance.now() - at;
    },
    clockBehindMs: (job) => (job.locked_by && clocks.get(job.locked_by)) || 0,
    comeBack: (job) => pools.get(job.locked_by ?? "")?.comeBack(job) ?? null,
    started: (job, state) => void running.set(job, state),
    unadmitted: (job, policy) => logUnadmitted(policy, job, logger),
  };

  function ended(poolId: string, job: Job, error: unknown): void {
    const state = running.get(job);
    const pool = pools.get(poolId);
    if (state) {
      running.delete(job);
      void pool?.release(job, state, error);
    } else if (job.key !== null && job.revision > 0) void pool?.releaseReplaced(job);
  }

  /** Once per pool, however many workers it has; each of them waits for it before its first job. */
  function startPool(workerPool: WorkerPool, withPgClient: WithPgClient, tasks: TaskList): Promise<void> {
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
    const clockBehindMs = await clockOf(workerPool.id, withPgClient);
    const pool = makeWorkerPool({
      poolId: workerPool.id,
      oneShot: ONE_SHOT.test(workerPool.id),
      clockBehindMs,
      slots: compiled.resolvedPreset.worker.concurrentJobs,
      tasks: Object.keys(tasks),
      withPgClient,
      pgPool: (compiled._rawOptions as { pgPool?: unknown }).pgPool,
      engine,
      settings,
      events,
      logger,
    });
    pools.set(workerPool.id, pool);
    try {
      if (!ONE_SHOT.test(workerPool.id)) checkConnections(compiled);
      await pool.start();
    } catch (error) {
      // Graphile Worker swallows what a hook throws: without its schema the pool must not run ungoverned.
      logger.error(`Cannot start: ${(error as Error).message}; shutting this worker pool down`, { error });
      void workerPool.gracefulShutdown("dispatch-policy could not start");
    }
  }

  /** Under useNodeTime Graphile Worker fetches jobs by the clock here: how far it is behind the database's. */
  async function clockOf(poolId: string, withPgClient: WithPgClient): Promise<number> {
    if (!compiled.resolvedPreset.worker.useNodeTime) return 0;
    const { behindMs, errorMs } = await withPgClient(async (client) => {
      let best = await engine.clockBehindMs(client);
      for (let look = 1; look < CLOCK_LOOKS; look++) {
        const one = await engine.clockBehindMs(client);
        if (one.errorMs < best.errorMs) best = one;
      }
      return best;
    });
    clocks.set(poolId, behindMs);
    return behindMs + errorMs + CLOCK_MARGIN_MS;
  }

  const tickTask = unwrapped(
    makeTickTask({
      ...settings,
      engine,
      events,
      async afterwards(withPgClient) {
        const { partitionInactiveAfterMs } = settings;
        const [poolId] = pools.keys();
        await sweepFully({ withPgClient, engine, events, partitionInactiveAfterMs, poolId });
      },
    }),
  );
  wrapTaskLists(compiled, observer, tickTask, logger);
  beforeLocalFetches(compiled, async (workerPool, withPgClient, tasks) => {
    await startPool(workerPool, withPgClient, tasks);
    if (pools.get(workerPool.id)?.isUnregistered()) throw unregistered();
  });
  beforeEachFetch(compiled, () => {
    if ([...pools.values()].some((pool) => pool.isUnregistered())) return Promise.reject(unregistered());
    const oneShots = [...pools].filter(([id]) => ONE_SHOT.test(id));
    return oneShots.length === 0 ? null : Promise.all(oneShots.map(([, pool]) => pool.catchUp()));
  });
  listen(compiled, settings.schema, logger, (poolId, said, pid) => pools.get(poolId)?.hear(said, pid));
  compiled.events.on("localQueue:getJobs:complete", ({ jobs }) => {
    for (const job of jobs) if (ticketOf(job) !== null) fetchedAt.set(job, performance.now());
  });
  compiled.events.on("job:complete", ({ worker, job, error }) => ended(worker.workerPool.id, job, error));
  compiled.events.on("pool:release", ({ workerPool }) => {
    void pools.get(workerPool.id)?.disconnect();
    pools.delete(workerPool.id);
    starting.delete(workerPool.id);
  });
  return { logger, pools, startPool, ended };
}
