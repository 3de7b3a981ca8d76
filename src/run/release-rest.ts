/** While workers have enough to do, and nobody waits for anything else, flushes are this far apart. */
const REST_MS = 250;
/** A release's answer that workers have enough to do counts for this long, unless a later one says otherwise. */
const MAY_REST_FOR_MS = 500;
/** Flushes are this far apart if a job that a release might let go has come meanwhile. */
const HURRIED_MS = 50;
/** Flushes are this far apart while nobody waits. As soon as somebody does, the next one goes at once. */
const UNWAITED_MS = 20;

/** What a release queue knows of who waits. Times are by `performance.now()`, in milliseconds. */
export interface Waiting {
  /** When the last flush began. */
  readonly flushedAt: number;
  /** Until then workers may have enough to do. */
  readonly mayRestUntil: number;
  /** Workers have enough to do until so many of this process's jobs have ended. */
  readonly mayEnd: number;
  /** Whether somebody waits for what the last flush freed. */
  readonly isWaitedFor: boolean;
  /** When a job last came that a release might let go. */
  readonly hurriedAt: number;
}

/**
 * Until when the next flush may rest, so that more jobs go with it. 0: it goes at once.
 *
 * @param ended how many jobs have ended since the last flush began
 */
export function restUntil(
  { flushedAt, mayRestUntil, mayEnd, isWaitedFor, hurriedAt }: Waiting,
  ended: number,
): number {
  const isHurried = hurriedAt > flushedAt;
  if (flushedAt < mayRestUntil && ended < mayEnd) return flushedAt + (isHurried ? HURRIED_MS : REST_MS);
  return isWaitedFor || isHurried ? 0 : flushedAt + UNWAITED_MS;
}

type Policies = ReadonlySet<string>;
const NONE: Policies = new Set<string>();

/** What a release queue learns from its flushes: how long the next one may rest, and which policies they are for. */
export function makeReleaseRest() {
  let waiting: Waiting = { flushedAt: 0, mayRestUntil: 0, mayEnd: 0, isWaitedFor: true, hurriedAt: 0 };
  let lastPolicies = NONE;
  let currentPolicies = NONE;

  return {
    /** A flush begins. */
    begin(): void {
      waiting = { ...waiting, flushedAt: performance.now() };
    },
    /** The flush that began has jobs of these policies. */
    beginsWith(policies: Policies): void {
      currentPolicies = policies;
    },
    /** It succeeded. `answers` is what the database says of who waits: see `engine.release`. */
    succeeded(answers: readonly (number | null)[], policies: Policies): void {
      const isWaitedFor = answers.some((answer) => answer !== null);
      const mayEnd = Math.min(...answers.map((answer) => answer ?? Number.POSITIVE_INFINITY));
      const { flushedAt } = waiting;
      waiting = { ...waiting, isWaitedFor };
      if (isWaitedFor)
        waiting = { ...waiting, mayEnd, mayRestUntil: mayEnd > 0 ? flushedAt + MAY_REST_FOR_MS : 0 };
      lastPolicies = policies;
    },
    /** It failed. Perhaps only the database's answer was lost, so somebody may wait. */
    failed(): void {
      waiting = { ...waiting, isWaitedFor: true };
    },
    /** A job has come that a release might let go. */
    hurry(): void {
      waiting = { ...waiting, hurriedAt: performance.now() };
    },
    /** Until when the next flush, with jobs of these policies, may rest. 0: it goes at once. */
    until(policies: Policies, ended: number): number {
      // nobody has asked the database yet who waits for what another policy's jobs occupy
      for (const policy of policies) if (!lastPolicies.has(policy)) return 0;
      return restUntil(waiting, ended);
    },
    /** When the last flush began. */
    flushedAt: (): number => waiting.flushedAt,
    /** Whether the flush under way, or the last one, has jobs of this policy. */
    isFor: (policy: string): boolean => currentPolicies.has(policy) || lastPolicies.has(policy),
  };
}
