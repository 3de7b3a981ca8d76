import { makeSleeper } from "../admit/sleeper.ts";
import { counted } from "../counted.ts";
import type { FinishedJob } from "../db/engine.ts";
import { errorText } from "../error-text.ts";
import { type EventSink, emit } from "../events.ts";
import { type FailureLog, makeFailureLog } from "../failure-log.ts";
import { type FlushContext, type Flushed, flush } from "./flush.ts";
import { makeReleaseRest } from "./release-rest.ts";
import { BATCH, makeUnreleased, policiesOf, sleepAfter, stopSettling } from "./unreleased.ts";

/** How long a queue that is closed goes on trying. */
const LAST_TRIES_MS = 3000;
/** Who frees these slots. */
const LEFT_TO_SWEEP = "the next sweep of any worker, or utils.sweep(), frees their slots";
/** pg's error once the host has ended its pool: nobody can flush any more. */
const POOL_ENDED = "Cannot use a pool after calling end on the pool";

export interface ReleaseContext extends FlushContext {
  readonly events: EventSink;
  /** Called after a flush that somebody waits for, that staged a retry, or that failed: its policies may have jobs to admit. */
  readonly onReleased?: (policies: ReadonlySet<string>) => void;
  /** Whether a sleep between tries keeps the process alive. Default true; false if nobody closes the queue. */
  readonly keepsAlive?: boolean;
  /** Whether flushes may be further apart while workers have enough to do. Default false: somebody waits for each. */
  readonly rests?: boolean;
}

export type ReleaseQueue = ReturnType<typeof makeReleaseQueue>;

/**
 * Collects finished jobs and releases them in groups. What finishes while a flush runs, or while nobody needs the slots,
 * goes with the next one.
 *
 * The queue tries again what a flush left or failed to do, until it is closed. A job that the database refuses to
 * release is left to a sweep, and delays no other. It is long because the loop, its sleeps and its end share their
 * state.
 */
export function makeReleaseQueue(context: ReleaseContext) {
  const { logger, keepsAlive = true, rests = false } = context;
  const group = {
    ...context,
    failures: makeFailureLog(logger, "Could not release finished jobs, trying again", "Releases work"),
  };
  const unreleased = makeUnreleased();
  const rest = makeReleaseRest();
  const sleeper = makeSleeper({ keepsAlive });
  let failures = 0;
  let flushing: Promise<void> | null = null;
  let closesAt = Number.POSITIVE_INFINITY;

  /** Adds a finished job. Resolves when its group was flushed once, also if that left it or failed. */
  function push(job: FinishedJob, policy: string): Promise<void> {
    const flushed = unreleased.add(job, policy);
    if (performance.now() < closesAt) flushing ??= flushAll();
    sleeper.wake();
    return flushed;
  }

  /** Ends in the same moment in which it finds nothing to flush, so that a later job starts another. */
  async function flushAll(): Promise<void> {
    try {
      do {
        await resting();
        failures = (await flushGroup(group, unreleased, rest)) ? 0 : failures + 1;
        if (failures > 0) await sleepUntil(performance.now() + sleepAfter(failures));
        else if (unreleased.fresh() === 0 && unreleased.size() > 0)
          await sleepUntil(unreleased.leftUntil(), () => unreleased.fresh() > 0);
      } while (unreleased.size() > 0 && performance.now() < closesAt);
    } finally {
      flushing = null;
    }
  }

  /** Also without a rest, jobs that are pushed in the same moment go with the flush. */
  async function resting(): Promise<void> {
    while (restsUntil() > performance.now()) await sleeper.sleepUntil(restsUntil);
  }

  function restsUntil(): number {
    const fresh = unreleased.fresh();
    const mayRest = rests && fresh < BATCH && closesAt === Number.POSITIVE_INFINITY;
    return mayRest ? rest.until(unreleased.freshPolicies(), fresh) : 0;
  }

  /** Resolves when no job waits. */
  async function idle(): Promise<void> {
    while (flushing) await flushing;
  }

  /** Closing the queue ends the sleep, and so does a new job after which `isOver`. */
  function sleepUntil(time: number, isOver = () => false): Promise<void> {
    const openUntil = closesAt;
    return sleeper.sleepUntil(() => (closesAt < openUntil || isOver() ? 0 : time));
  }

  return {
    push,
    /** A job has come that a release might let go: a rest is cut short. */
    hurry(): void {
      rest.hurry();
      sleeper.wake();
    },
    /** Whether the flush under way, or the last one, has jobs of this policy, so that `onReleased` names it. */
    isFor: (policy: string | undefined): boolean => policy !== undefined && rest.isFor(policy),
    idle,
    /** Flushes the remaining jobs, for up to three seconds, and logs how many it could not release. */
    async close(): Promise<void> {
      closesAt = Math.min(closesAt, performance.now() + LAST_TRIES_MS);
      sleeper.wake();
      await idle();
      if (unreleased.size() === 0) return;
      logger.warn(
        `${unreleased.size()} finished jobs were not released before the pool closed: ${LEFT_TO_SWEEP}`,
      );
    },
  };
}

/** Whether it succeeded. */
async function flushGroup(
  context: ReleaseContext & { readonly failures: FailureLog },
  unreleased: ReturnType<typeof makeUnreleased>,
  rest: ReturnType<typeof makeReleaseRest>,
): Promise<boolean> {
  rest.begin();
  const flushed = await flush(context, () => {
    const group = unreleased.consume();
    rest.beginsWith(policiesOf(group));
    return group;
  });
  const { group, again, answers, wakes, failure } = flushed;
  const policies = policiesOf(group);
  if (failure) rest.failed();
  else rest.succeeded(answers, policies);
  const estimated = failure ? 0 : stopSettling(again);
  if (estimated > 0)
    context.logger.warn(
      `Stopped settling ${estimated} finished jobs, to free their slots: a throttle or one of the jobs is still locked`,
    );
  report(flushed, performance.now() - rest.flushedAt(), context);
  if (!isPoolEnded(failure?.error)) unreleased.putBack(again);
  // a retry is staged, and will be due
  if (wakes || failure || group.some(({ job }) => job.retry !== null)) context.onReleased?.(policies);
  for (const one of group) one.flushed();
  return failure === undefined;
}

function report(
  { group, again, passedOn, failure }: Flushed,
  durationMs: number,
  { logger, events, failures }: ReleaseContext & { readonly failures: FailureLog },
): void {
  for (const { policy, jobs } of passedOn)
    emit(events, "dispatchPolicy:admit", { policy, shard: null, count: jobs });
  if (failure === undefined) {
    failures.succeeded();
    const jobs = group.length - again.length;
    if (jobs === 0) return;
    emit(events, "dispatchPolicy:release", { jobs, durationMs });
    logger.debug(
      `Released ${counted(jobs, "finished job")} in ${durationMs.toFixed(1)} ms, left ${again.length} for the next flush`,
      { jobs, left: again.length, durationMs },
    );
    return;
  }
  const { error } = failure;
  const next = isPoolEnded(error) ? LEFT_TO_SWEEP : "trying again";
  failures.failed(error, `Could not release ${again.length} finished jobs, ${next}: ${errorText(error)}`);
}

function isPoolEnded(error: unknown): boolean {
  return error instanceof Error && error.message === POOL_ENDED;
}
