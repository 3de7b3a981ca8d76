import type { EventEmitter } from "node:events";
import type { CompiledSharedOptions, Logger, TaskList, WithPgClient, WorkerPool } from "graphile-worker";
import type { Engine } from "../db/engine.ts";
import { LOST_ANSWER } from "../db/surviving-pool.ts";
import { ArgumentError } from "../errors.ts";
import type { EventSink } from "../events.ts";
import type { PoolClock } from "../pool/pool-context.ts";
import { makeWorkerPool, type WorkerPoolRuntime } from "../pool/worker-pool.ts";
import type { RunningJobs } from "../run/running-jobs.ts";
import type { Settings } from "../settings.ts";
import { fetchingOf } from "./worker-internals.ts";

/** One-shot pools (runOnce, runTaskListOnce) have no loop and no listener. */
const ONE_SHOT = /^otpool-/;
/** A clock here has whole milliseconds. */
const CLOCK_MARGIN_MS = 5;
/** The clocks are compared over a network, so the quickest of several answers counts. */
const CLOCK_LOOKS = 5;

/** Graphile Worker fetches jobs by the database's clock. */
const SAME_CLOCK: PoolClock = { behindMs: 0, atMostMs: 0 };

export interface PoolsContext {
  readonly jobs: RunningJobs;
  /** Looks whether a pool's notifications still come. */
  readonly checkListening: (poolId: string) => void;
  readonly engine: Engine;
  readonly settings: Settings;
  readonly events: EventSink;
  readonly logger: Logger;
}

/** The worker pools of one compiled set of options, from their first worker to their release. */
export function makePools(compiled: CompiledSharedOptions, context: PoolsContext) {
  const { engine, logger } = context;
  const { concurrentJobs: slots, useNodeTime } = compiled.resolvedPreset.worker;
  const starting = new Map<string, Promise<void>>();
  const open = new Map<string, WorkerPoolRuntime>();
  const closing = new Map<string, () => void>();

  async function openPool(
    workerPool: WorkerPool,
    withPgClient: WithPgClient,
    tasks: TaskList,
  ): Promise<void> {
    const { id: poolId } = workerPool;
    const oneShot = ONE_SHOT.test(poolId);
    // a local queue asks for its flags in this very moment: a one-shot pool must not catch up before it has started
    const clock = await (useNodeTime ? clockOf(engine, withPgClient) : SAME_CLOCK);
    const { pgPool } = compiled._rawOptions as { pgPool?: unknown };
    const pool = makeWorkerPool({
      ...context,
      poolId,
      oneShot,
      clock,
      slots,
      tasks: Object.keys(tasks),
      fetching: fetchingOf(workerPool, tasks, slots),
      hand: context.jobs.inHand(poolId),
      runOf: context.jobs.runOf,
      disown: context.jobs.disown,
      checkListening: () => context.checkListening(poolId),
      withPgClient,
      pgPool,
    });
    open.set(poolId, pool);
    const emitter = pgPool as Partial<EventEmitter> | undefined;
    emitter?.on?.(LOST_ANSWER, pool.lostAnswer);
    closing.set(poolId, () => emitter?.off?.(LOST_ANSWER, pool.lostAnswer));
    try {
      if (!oneShot) checkConnections(compiled);
      await pool.start();
    } catch (error) {
      // Graphile Worker swallows what a hook throws, but without its schema the pool must not run without limits
      logger.error(`Cannot start: ${(error as Error).message}; shutting this worker pool down`, { error });
      void workerPool.gracefulShutdown("dispatch-policy could not start");
    }
  }

  return {
    /** Opens the pool once, however many workers it has. Each of them waits for it before its first job. */
    start(workerPool: WorkerPool, withPgClient: WithPgClient, tasks: TaskList): Promise<void> {
      const known = starting.get(workerPool.id);
      if (known) return known;
      const started = openPool(workerPool, withPgClient, tasks);
      starting.set(workerPool.id, started);
      return started;
    },
    byId: (poolId: string | null | undefined): WorkerPoolRuntime | undefined => open.get(poolId ?? ""),
    all: (): WorkerPoolRuntime[] => [...open.values()],
    /** The host let the pool go. */
    release(poolId: string): void {
      void open.get(poolId)?.disconnect();
      open.delete(poolId);
      closing.get(poolId)?.();
      closing.delete(poolId);
      starting.delete(poolId);
      context.jobs.forget(poolId);
    },
  };
}

export type Pools = ReturnType<typeof makePools>;

/** Under useNodeTime Graphile Worker fetches jobs by the clock here: how far that is behind the database's. */
async function clockOf(engine: Engine, withPgClient: WithPgClient): Promise<PoolClock> {
  const { behindMs, errorMs } = await withPgClient(async (client) => {
    let best = await engine.clockBehindMs(client);
    for (let look = 1; look < CLOCK_LOOKS; look++) {
      const one = await engine.clockBehindMs(client);
      if (one.errorMs < best.errorMs) best = one;
    }
    return best;
  });
  return { behindMs, atMostMs: behindMs + errorMs + CLOCK_MARGIN_MS };
}

/** @throws {ArgumentError} for a pool of one connection: Graphile Worker listens with it, and would wait for another for ever */
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
