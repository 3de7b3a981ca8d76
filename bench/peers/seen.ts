// What the tasks saw, and what follows from it.

/** One run of a job. */
export interface Seen {
  readonly key: string;
  readonly id: number;
  readonly start: number;
  /** Undefined: it is still running. */
  readonly end?: number;
  /** It ended because its process did. */
  readonly killed?: true;
}

/** Of each key by itself: the most that ran at once, and the starts that made it more than the limit. */
export function overruns(seen: readonly Seen[], limit: number): { most: number; above: number } {
  let most = 0;
  let above = 0;
  for (const own of byKey(seen)) {
    let running = 0;
    for (const { start } of turns(own)) {
      running += start ? 1 : -1;
      if (start && running > limit) above++;
      most = Math.max(most, running);
    }
  }
  return { most, above };
}

/** Ends before starts of the same moment. */
function turns(seen: readonly Seen[]): { at: number; start: boolean }[] {
  const starts = seen.map(({ start }) => ({ at: start, start: true }));
  const ends = seen.flatMap(({ end }) => (end === undefined ? [] : [{ at: end, start: false }]));
  return [...ends, ...starts].sort((a, b) => a.at - b.at);
}

/** Of each key by itself: from each end to the start that takes its place; earlier ends are served first. */
export function turnarounds(seen: readonly Seen[]): number[] {
  return byKey(seen).flatMap((own) => {
    const took: number[] = [];
    const freed: number[] = [];
    for (const { at, start } of turns(own)) {
      if (!start) freed.push(at);
      else if (freed.length > 0) took.push(at - freed.shift()!);
    }
    return took;
  });
}

/** Jobs per second from the first start to the last end. */
export function throughput(seen: readonly Seen[]): number {
  const ends = seen.flatMap(({ end }) => end ?? []);
  const ms = greatest(ends) - least(seen.map(({ start }) => start));
  return (ends.length / ms) * 1000;
}

export interface Windows {
  /** The most starts in any. */
  readonly most: number;
  /** The part with more than allowed. */
  readonly above: number;
  /** How far from what is allowed the starts were at worst, as a part of it. */
  readonly error: number;
}

/** Of each key by itself: windows of that length. The error is of those that are over `withinMs` after the first start. */
export function windows(
  seen: readonly Seen[],
  { ms, allowed, withinMs }: { ms: number; allowed: number; withinMs: number },
): Windows {
  let most = 0;
  let above = 0;
  let error = 0;
  for (const own of byKey(seen)) {
    const starts = own.map(({ start }) => start).toSorted((a, b) => a - b);
    let last = 0;
    for (const [first, start] of starts.entries()) {
      while (last < starts.length && starts[last]! < start + ms) last++;
      const count = last - first;
      most = Math.max(most, count);
      if (count > allowed) above++;
      if (start + ms <= starts[0]! + withinMs) error = Math.max(error, Math.abs(count - allowed) / allowed);
    }
  }
  return { most, above: above / seen.length, error };
}

export function byKey(seen: readonly Seen[]): Seen[][] {
  return [...Map.groupBy(seen, ({ key }) => key).values()];
}

// not Math.max(...): there may be more of them than a call takes arguments
export const least = (values: readonly number[]): number => values.reduce((a, b) => Math.min(a, b), Infinity);
export const greatest = (values: readonly number[]): number => values.reduce((a, b) => Math.max(a, b), 0);
