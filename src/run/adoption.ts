import type { WithPgClient } from "graphile-worker";
import { sleep } from "../admit/sleeper.ts";
import { counted } from "../counted.ts";
import type { Engine } from "../db/engine.ts";
import { type EventSink, emit } from "../events.ts";
import type { Logger } from "../log.ts";
import { type AnyPolicy, policyDefinition } from "../policy/policy.ts";

/** If a process catches so many jobs of a task within this time, more of them wait in Graphile Worker. */
const MANY = 10;
const WITHIN_MS = 5000;
/** How many jobs one step moves. A larger step would keep its rows locked for longer. */
const STEP = 2000;
/**
 * How often it checks whether another session has ended its step, and for how long. The task's jobs are not fetched
 * meanwhile, and the session may be an open transaction that called `adopt`.
 */
const BUSY_MS = 50;
const BUSY_FOR_MS = 1000;
/**
 * After an adoption it rests for so many times its duration. To find a few jobs among many of other tasks takes long.
 */
const RESTS = 5;

export interface AdoptionContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly events: EventSink;
  readonly logger: Logger;
  /** Nothing is adopted while the pool is stopping. */
  readonly life: { readonly stopping: boolean; readonly onStop: AbortSignal };
  readonly fetching: Fetching;
}

/** Which tasks' jobs a worker pool fetches. */
export interface Fetching {
  /** It fetches no more jobs of this task. */
  stop(task: string): void;
  /** It fetches them again. */
  resume(task: string): void;
}

/**
 * Adopts the jobs of a task that wait in Graphile Worker, if this process catches many of them at their start. Each
 * catch costs a fetch, a copy and a completion.
 *
 * Meanwhile this process fetches no job of the task. The waiting jobs are older than new jobs of other tasks. If they
 * were fetched, the new jobs would start after the last of them.
 */
export function makeAdoption(context: AdoptionContext) {
  const { logger, life, fetching } = context;
  const caughtAt = new Map<string, number[]>();
  const restUntil = new Map<string, number>();
  const running = new Map<string, Promise<void>>();

  function isMany(task: string): boolean {
    const now = performance.now();
    const times = (caughtAt.get(task) ?? []).filter((time) => time > now - WITHIN_MS);
    times.push(now);
    caughtAt.set(task, times.slice(-MANY));
    return times.length >= MANY && now >= (restUntil.get(task) ?? 0);
  }

  async function adopt(policy: string, task: string): Promise<void> {
    const started = performance.now();
    fetching.stop(task);
    try {
      const count = await adoptWaiting(context, policy, task);
      if (count > 0)
        logger.info(`Adopted ${counted(count, "job")} of ${task} that waited in Graphile Worker`);
    } catch (error) {
      // the jobs are still caught one by one, and the next of them try again
      if (!life.stopping) logger.warn(`Cannot adopt jobs of ${task}: ${(error as Error).message}`, { error });
    } finally {
      running.delete(task);
      caughtAt.delete(task);
      restUntil.set(task, performance.now() + (performance.now() - started) * RESTS);
      fetching.resume(task);
    }
  }

  return {
    /** A job of this task starts without an admission. */
    caught(policy: AnyPolicy, task: string): void {
      if (policyDefinition(policy).unmanaged !== "enforce" || life.stopping) return;
      if (!running.has(task) && isMany(task)) running.set(task, adopt(policy.identifier, task));
    },
    /** Resolves when no step is under way. */
    settled: (): Promise<unknown> => Promise.all(running.values()),
  };
}

/**
 * Adopts step by step, until a step is not full. Returns how many jobs. If another session adopts, it waits for at most
 * one second, because this process does not fetch the task's jobs meanwhile.
 */
async function adoptWaiting(
  { withPgClient, engine, events, life }: AdoptionContext,
  policy: string,
  task: string,
): Promise<number> {
  let total = 0;
  let busySince = performance.now();
  for (let after: string | null = "0"; after !== null && !life.stopping; ) {
    const from: string = after;
    const step = await withPgClient((client) => engine.adoptUnlessBusy(client, task, from, STEP));
    if (step?.busy) {
      if (performance.now() - busySince > BUSY_FOR_MS) break;
      await sleep(BUSY_MS, life.onStop);
      continue;
    }
    busySince = performance.now();
    const count = step?.changed ?? 0;
    if (count > 0) emit(events, "dispatchPolicy:adopt", { policy, task, count });
    total += count;
    // otherwise, jobs that are added meanwhile would keep it going for ever
    after = step && (step.matched ?? 0) === STEP ? step.last_id : null;
  }
  return total;
}
