import type { Logger } from "graphile-worker";
import { goOnResolving } from "../admit/resolve-again.ts";
import { counted } from "../counted.ts";
import { type Repaired, type SweepContext, sweepOnce } from "../operate/sweep.ts";
import type { Registry } from "../policy/registry.ts";
import { makeOrphans } from "./orphans.ts";
import type { PoolLife } from "./pool-context.ts";

export interface SweeperContext extends SweepContext {
  readonly sweepIntervalMs: number;
  readonly logger: Logger;
  readonly registry: Registry;
  /** Called after each sweep: it may have let jobs go. */
  readonly onSwept: () => void;
}

/** What a sweep repaired: one of each kind, and several. */
const KINDS: Readonly<Record<keyof Repaired, readonly [one: string, many: string]>> = {
  pools: ["dead worker pool", "dead worker pools"],
  unlocked: ["job that a dead pool had locked", "jobs that dead pools had locked"],
  overdue: ["slot past its slotTimeout", "slots past their slotTimeout"],
  jobs: ["lost slot", "lost slots"],
  counters: ["wrong counter", "wrong counters"],
  asleep: ["partition that slept with due jobs", "partitions that slept with due jobs"],
  blocked: ["partition that waited in vain", "partitions that waited in vain"],
  pending: ["wrong count of a backlog", "wrong counts of a backlog"],
};

/** "3 lost slots, 1 wrong counter". */
function named(repaired: Repaired): string {
  const kinds = Object.entries(KINDS) as [keyof Repaired, readonly [string, string]][];
  return kinds
    .filter(([kind]) => repaired[kind] > 0)
    .map(([kind, [one, many]]) => counted(repaired[kind], one, many))
    .join(", ");
}

/** A leader's sweeps, which find and repair what went wrong. The first is due one interval after the start. */
export function makeSweeper(context: SweeperContext, life: PoolLife) {
  const { logger, sweepIntervalMs } = context;
  const orphans = makeOrphans(logger);
  let sweptAt = performance.now();

  /** Its own, so that a step that fails stops no other. */
  async function attempt(step: string, act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      if (!life.stopping) logger.warn(`${step} failed: ${(error as Error).message}`, { error });
    }
  }

  async function repair(): Promise<void> {
    const { repaired, failed } = await sweepOnce({ ...context, signal: life.onStop });
    for (const { step, error } of life.stopping ? [] : failed)
      logger.warn(`Sweep: ${step}: ${error.message}`, { error });
    if (Object.values(repaired).some((n) => n > 0))
      logger.warn(`A sweep repaired what a crash or a wrong clock left: ${named(repaired)}`, { repaired });
  }

  async function sweep(): Promise<void> {
    const { withPgClient, engine } = context;
    await attempt("Sweep", repair);
    await attempt("Working out limits again", () => goOnResolving(withPgClient, engine, context, logger));
    await attempt("Looking for policies without a worker", () => orphans.look(withPgClient, engine));
    context.onSwept();
  }

  return {
    /** Starts a sweep if one is due. Does not wait for it. */
    sweepIfDue(): void {
      if (performance.now() - sweptAt < sweepIntervalMs) return;
      sweptAt = performance.now();
      void sweep();
    },
    /** Milliseconds until the next sweep is due. */
    dueInMs: (): number => sweptAt + sweepIntervalMs - performance.now(),
  };
}
