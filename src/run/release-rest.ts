/** While workers have enough to do, and nobody waits for anything else, flushes are this far apart. */
const SATURATED_MS = 250;
/** And that for this long after a release said so, unless one says otherwise: who waited has just been woken. */
export const SATURATED_FOR_MS = 500;
/** This far apart if somebody has come meanwhile whom a release might let go. */
const HURRIED_MS = 50;
/** While nobody at all waits, they are this far apart, and come at once when somebody does. */
const UNWAITED_MS = 20;

/** What a release queue knows of who waits; times by `performance.now()`, in milliseconds. */
export interface Waiting {
  /** When the last flush began. */
  readonly flushedAt: number;
  /** Until then workers have enough to do. */
  readonly saturatedUntil: number;
  /** Whether somebody waits for what the last flush freed. */
  readonly isWaitedFor: boolean;
  /** When somebody last came whom a release might let go. */
  readonly hurriedAt: number;
}

/** Until when the next flush may rest, so that more jobs go with it; 0: it goes at once. */
export function restUntil({ flushedAt, saturatedUntil, isWaitedFor, hurriedAt }: Waiting): number {
  const isHurried = hurriedAt > flushedAt;
  if (flushedAt < saturatedUntil) return flushedAt + (isHurried ? HURRIED_MS : SATURATED_MS);
  return isWaitedFor || isHurried ? 0 : flushedAt + UNWAITED_MS;
}
