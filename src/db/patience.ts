/**
 * How long the statements of one kind may take. On a slow machine that is longer each time: a statement that is given up at
 * half its way, again and again, never gets through, and what it has done is load.
 */
export interface Patience {
  /** In milliseconds, of the next statement. */
  readonly ms: number;
  /** One was given up. */
  tooShort(): void;
  /** One has taken so long. */
  enough(tookMs: number): void;
}

/** A statement that has taken a quarter of the time or less brings it back. */
const MARGIN = 4;

export function makePatience(least: number, most: number): Patience {
  let ms = least;
  return {
    get ms(): number {
      return ms;
    },
    tooShort(): void {
      ms = Math.min(ms * 2, Math.max(least, most));
    },
    enough(tookMs: number): void {
      ms = Math.max(least, Math.min(ms, Math.ceil(tookMs * MARGIN)));
    },
  };
}
