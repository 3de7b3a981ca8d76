import type { Logger, WithPgClient } from "graphile-worker";
import type { Engine, FinishedJob, Queryable } from "../db/engine.ts";
import { divide, isOfEntries } from "../db/halves.ts";
import { type EventSink, emit } from "../events.ts";
import { restUntil, SATURATED_FOR_MS } from "./release-rest.ts";

/** Fresh jobs in one flush at most. */
const BATCH = 3000;
/** Jobs that a flush left come again after this, twice as long each time: mostly their end is about to be recorded. */
const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 1000;
/** How long a queue that is closed goes on trying. */
const LAST_TRIES_MS = 3000;
/** What pg says when nobody can flush any more. */
const POOL_ENDED = "Cannot use a pool after calling end on the pool";

export interface ReleaseContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly events: EventSink;
  readonly logger: Logger;
  /** Called after a flush that somebody waits for, staged a retry, or failed: these policies may have something to admit. */
  readonly onReleased?: (policies: ReadonlySet<string>) => void;
  /** Whether what waits for its next try keeps the process alive; false where nobody closes the queue. */
  readonly keepsAlive?: boolean;
  /** Whether flushes may be further apart while workers have enough to do; false where somebody waits for each. */
  readonly rests?: boolean;
}

interface Entry {
  readonly job: FinishedJob;
  readonly policy: string;
  tries: number;
  /** Tells whoever pushed it that its group was flushed. */
  readonly flushed: () => void;
}

/**
 * Collects finished jobs and releases them in groups: whatever finished while the last flush ran, or while nobody needed
 * what they hold, goes with the next. What a flush could not deal with, and a flush that failed, is tried again until it is
 * done or the queue is closed. A job that the database refuses to release is left to a sweep, and holds up no other.
 */
export function makeReleaseQueue(context: ReleaseContext) {
  const { logger, events, keepsAlive = true, rests = false } = context;
  const fresh: Entry[] = [];
  let freshPolicies = new Set<string>();
  const left: Entry[] = [];
  let leftUntil = 0;
  /** The last flush began then, with jobs of these policies. */
  let flushedAt = 0;
  let flushedPolicies = new Set<string>();
  /** Of the flush under way, if any. */
  let flushingPolicies = new Set<string>();
  let saturatedUntil = 0;
  let isWaitedFor = true;
  let hurriedAt = 0;
  let failures = 0;
  let flushing: Promise<void> | null = null;
  let closesAt = Number.POSITIVE_INFINITY;
  let wake = (): void => {};

  /** Adds a finished job; resolves when its group was flushed once (not when it was dealt with). */
  function push(job: FinishedJob, policy: string): Promise<void> {
    const flushed = new Promise<void>((resolve) => fresh.push({ job, policy, tries: 0, flushed: resolve }));
    freshPolicies.add(policy);
    if (performance.now() < closesAt) flushing ??= flushAll();
    wake();
    return flushed;
  }

  /** It is over in the moment that finds nothing to flush: what comes later begins another. */
  async function flushAll(): Promise<void> {
    try {
      do {
        await rest();
        await flush();
        if (failures > 0) await pause(pauseAfter(failures), () => false);
        else if (fresh.length === 0 && left.length > 0)
          await pause(leftUntil - performance.now(), () => fresh.length > 0);
      } while (fresh.length + left.length > 0 && performance.now() < closesAt);
    } finally {
      flushing = null;
    }
  }

  /** Ends early where jobs come that make it shorter, or somebody else does. */
  async function rest(): Promise<void> {
    for (let until = restsUntil(); until > performance.now(); until = restsUntil())
      await pause(until - performance.now(), () => restsUntil() < until);
  }

  function restsUntil(): number {
    if (!rests || fresh.length >= BATCH || closesAt < Number.POSITIVE_INFINITY) return 0;
    // who waits for what another policy's jobs hold, nobody knows yet
    if ([...freshPolicies].some((policy) => !flushedPolicies.has(policy))) return 0;
    return restUntil({ flushedAt, saturatedUntil, isWaitedFor, hurriedAt });
  }

  /** What goes now: all that is fresh, and what was left if its time has come or nothing else goes. */
  function take(): Entry[] {
    const due = fresh.length === 0 || performance.now() >= leftUntil ? left.splice(0) : [];
    const taken = [...fresh.splice(0, BATCH), ...due];
    freshPolicies = policiesOf(fresh);
    return taken;
  }

  /** Asks for a client at once, before Graphile Worker does for its next fetch; what finishes until it is there goes too. */
  async function flush(): Promise<void> {
    flushedAt = performance.now();
    let batch: readonly Entry[] = [];
    /** Those that come again: not released yet, or left. */
    const again = new Set<Entry>();
    const saturated: (boolean | null)[] = [];
    const release = async (client: Queryable, part: readonly Entry[]) => {
      const released = await context.engine.release(
        client,
        part.map(({ job }) => job),
      );
      saturated.push(released.saturated);
      const leftIds = new Set(released.left_ids);
      for (const entry of part) if (!leftIds.has(entry.job.job)) again.delete(entry);
    };
    const takeAll = () => {
      batch = take();
      flushingPolicies = policiesOf(batch);
      for (const entry of batch) again.add(entry);
    };
    try {
      try {
        await context.withPgClient((client) => {
          takeAll();
          return release(client, batch);
        });
      } catch (error) {
        if (!isOfEntries(error)) throw error;
        const releasePart = (part: readonly Entry[]) =>
          context.withPgClient((client) => release(client, part));
        await divide(batch, error, releasePart, (entry, refusal) => {
          again.delete(entry);
          leaveToSweep(entry, refusal);
        });
      }
      isWaitedFor = saturated.some((answer) => answer !== null);
      const isSaturated = isWaitedFor && saturated.every((answer) => answer !== false);
      if (isWaitedFor) saturatedUntil = isSaturated ? flushedAt + SATURATED_FOR_MS : 0;
      flushedPolicies = policiesOf(batch);
      failures = 0;
      const durationMs = performance.now() - flushedAt;
      const done = batch.length - again.size;
      if (done > 0) emit(events, "dispatchPolicy:release", { jobs: done, durationMs });
      comeAgain([...again]);
    } catch (error) {
      failures++;
      isWaitedFor = true; // its answer may be all that was lost
      if (batch.length === 0) takeAll(); // there was no client
      const ended = isPoolEnded(error);
      const message = error instanceof Error ? error.message : String(error);
      const next = ended ? "a sweep will do it" : "trying again";
      logger.warn(`Could not release ${again.size} finished jobs, ${next}: ${message}`, { error });
      if (!ended) comeAgain([...again]);
    }
    // a retry is staged, and due some time
    if (isWaitedFor || batch.some(({ job }) => job.retry !== null)) context.onReleased?.(policiesOf(batch));
    for (const { flushed } of batch) flushed();
  }

  function leaveToSweep({ job, policy }: Entry, error: Error): void {
    logger.warn(
      `Could not release job ${job.job} of policy ${policy}, a sweep gives its slot back: ${error.message}`,
      { error },
    );
  }

  /** The newest of those that are left decides when: an older one must not slow down what is about to be done. */
  function comeAgain(entries: readonly Entry[]): void {
    if (entries.length === 0) return;
    for (const entry of entries) entry.tries++;
    const soonest = performance.now() + pauseAfter(Math.min(...entries.map(({ tries }) => tries)));
    leftUntil = left.length === 0 ? soonest : Math.min(leftUntil, soonest);
    left.push(...entries);
  }

  /** Jobs that come cut it short if `isOver` then, closing does in any case. */
  function pause(ms: number, isOver: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(ms, 0));
      if (!keepsAlive) timer.unref();
      wake = () => {
        if (!isOver() && closesAt === Number.POSITIVE_INFINITY) return;
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Resolves when nothing is waiting. */
  async function idle(): Promise<void> {
    while (flushing) await flushing;
  }

  return {
    push,
    /** Somebody has come whom a release might let go: a rest is cut short. */
    hurry(): void {
      hurriedAt = performance.now();
      wake();
    },
    /** Whether the flush under way, or the last one, has jobs of this policy: `onReleased` tells of it. */
    isFor: (policy: string | undefined): boolean =>
      policy !== undefined && (flushingPolicies.has(policy) || flushedPolicies.has(policy)),
    idle,
    /** Flushes what is left, trying for a few seconds, and reports what could not be dealt with. */
    close: async (): Promise<void> => {
      closesAt = Math.min(closesAt, performance.now() + LAST_TRIES_MS);
      wake();
      await idle();
      if (fresh.length + left.length === 0) return;
      logger.warn(`${fresh.length + left.length} finished jobs were not released; a sweep will do it`);
    },
  };
}

export type ReleaseQueue = ReturnType<typeof makeReleaseQueue>;

function policiesOf(entries: readonly Entry[]): Set<string> {
  return new Set(entries.map(({ policy }) => policy));
}

function pauseAfter(tries: number): number {
  return Math.min(FIRST_PAUSE_MS * 2 ** (tries - 1), LONGEST_PAUSE_MS);
}

function isPoolEnded(error: unknown): boolean {
  return error instanceof Error && error.message === POOL_ENDED;
}
