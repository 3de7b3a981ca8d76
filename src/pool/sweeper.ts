import { goOnResolving } from "../admit/resolve-again.ts";
import type { Logger } from "../log.ts";
import { releaseMarked, type SweepContext, sweepOnce } from "../operate/sweep.ts";
import type { Registry } from "../policy/registry.ts";
import { makeOldSnapshots } from "./old-snapshots.ts";
import { makeOrphans } from "./orphans.ts";
import type { PoolLife } from "./pool-context.ts";
import { warnOfRepairs } from "./repairs.ts";

export interface SweeperContext extends SweepContext {
  readonly sweepIntervalMs: number;
  readonly logger: Logger;
  readonly registry: Registry;
  /** Called after each sweep: it may have let jobs go. */
  readonly onSwept: () => void;
}

/** A leader's sweeps, which find and repair what went wrong. The first is due one interval after the start. */
export function makeSweeper(context: SweeperContext, life: PoolLife) {
  const { logger, sweepIntervalMs } = context;
  const orphans = makeOrphans(logger);
  const oldSnapshots = makeOldSnapshots(logger);
  let sweptAt = performance.now();
  const underWay = new Set<string>();
  let freesAgain = false;

  /**
   * Its own, so that a step that fails stops no other. On a slow database a step may take longer than the interval. If it
   * began again beside itself, each would slow the others down, and none would end. So it is left out until it has ended.
   */
  async function attempt(step: string, act: () => Promise<void>): Promise<void> {
    if (underWay.has(step)) return;
    underWay.add(step);
    try {
      await act();
    } catch (error) {
      if (!life.stopping) logger.warn(`${step} failed: ${(error as Error).message}`, { error });
    } finally {
      underWay.delete(step);
    }
  }

  async function repair(): Promise<void> {
    const { repaired, failed } = await sweepOnce({ ...context, signal: life.onStop });
    for (const { step, error } of life.stopping ? [] : failed)
      logger.warn(`Sweep: ${step}: ${error.message}`, { error });
    warnOfRepairs(repaired, logger);
  }

  const resolve = () =>
    attempt("Working out limits again", () =>
      goOnResolving(context.withPgClient, context.engine, context, logger),
    );

  async function sweep(): Promise<void> {
    const { withPgClient, engine } = context;
    await attempt("Sweep", repair);
    await resolve();
    await attempt("Looking for policies without a worker", () => orphans.look(withPgClient, engine));
    await attempt("Looking for old snapshots", () => oldSnapshots.look(withPgClient, engine));
    context.onSwept();
  }

  return {
    /** Starts a sweep if one is due. Does not wait for it. */
    sweepIfDue(): void {
      if (performance.now() - sweptAt < sweepIntervalMs) return;
      sweptAt = performance.now();
      void sweep();
    },
    /** Frees the slots of jobs that were cancelled before a worker fetched them. Does not wait for it. */
    freeCancelled(): void {
      freesAgain = true;
      void attempt("Freeing the slots of cancelled jobs", async () => {
        while (freesAgain) {
          freesAgain = false;
          await releaseMarked(context);
        }
      });
    },
    /** Works out the limits again of those policies whose definition in force has changed to one of this process. */
    resolve,
    /** Milliseconds until the next sweep is due. */
    dueInMs: (): number => sweptAt + sweepIntervalMs - performance.now(),
  };
}
